module github.com/purserhq/purser/examples/go-cli

go 1.25

require github.com/purserhq/purser/sdk/go v0.1.0

replace github.com/purserhq/purser/sdk/go => ../../sdk/go
