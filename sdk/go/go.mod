module github.com/purserhq/purser/sdk/go

go 1.24
