# Everything a developer or a build machine does: make help.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup build check test bench profile htmx clean

HTMX := 4.0.1
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Runs a command with a PostgreSQL of its own, which ends with it.
WITH_POSTGRES := go run ./internal/testkit/dbtest/pg --

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

build: ## one static binary, ./purser
	CGO_ENABLED=0 go build -trimpath -pgo=cmd/purser/hot.pgo -ldflags='-s -w' -o purser ./cmd/purser

setup: ## what tests need beside Go: PostgreSQL and Chromium (Debian, as root)
	@.ci/setup

check: ## format, vet, staticcheck, go.mod
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	go mod tidy -diff

test: setup ## all tests with the race detector; ARGS adds flags: make test ARGS='-run Ledger -v'
	$(WITH_POSTGRES) go test -race -shuffle=on -timeout 20m $(ARGS) ./internal/server ./internal/ledger ./... # the longest first
	@if [ -d e2e ]; then $(WITH_POSTGRES) go -C e2e test -shuffle=on -timeout 20m $(ARGS) ./...; fi

bench: setup ## load against a proxy without billing, in one run
	go run ./bench

profile: setup ## tell the compiler anew which calls are hot: cmd/purser/hot.pgo
	go run ./bench --parts http --clients 64 --rounds 1 --duration 10s --pgo cmd/purser/hot.pgo

htmx: ## fetch the script of the live pages anew, from the npm registry
	@dir=$$(mktemp -d); npm pack --silent --pack-destination $$dir htmx.org@$(HTMX) >/dev/null; tar -xzf $$dir/htmx.org-$(HTMX).tgz -C $$dir; \
	cp $$dir/package/dist/htmx.min.js internal/base/ui/assets/htmx.min.js; rm -r $$dir; sha256sum internal/base/ui/assets/htmx.min.js

clean: ## what the targets above left behind
	rm -rf purser bench/out
