# Everything a developer or a build machine does: make help.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup build check test test-long world mutants bench profile htmx uplot icons fonts scalar screenshots guides sdks notices release module clean

HTMX := 4.0.1
SCALAR := 1.72.1
UPLOT := 1.6.32
LUCIDE := 1.62.0
INTER := 5.3.0
MONO := 5.3.0
ICONS := activity arrow-left arrow-right badge-check bell book-open boxes calendar chart-column check chevron-right \
	chevrons-up-down circle-check circle-x clock code copy credit-card download external-link eye filter flask-conical \
	gauge globe house image info key-round layout-dashboard link list lock log-out mail menu message-square mic pause \
	pencil play plug plus puzzle receipt refresh-cw rocket scroll-text search send server settings shield shield-check \
	sparkles star trash-2 triangle-alert user user-plus users wallet webhook wrench x
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
# Runs a tool of a fixed version. It asks the module cache first, so that it needs the network only once.
RUN_TOOL := GOPROXY="file://$$(go env GOMODCACHE)/cache/download,$$(go env GOPROXY)" go run
# The modules for developers of apps. They use nothing of this module.
MODULES := sdk/go $(wildcard examples/go-*)
# Runs a command with a PostgreSQL of its own, which ends with it.
WITH_POSTGRES := go run ./internal/testkit/dbtest/pg --

help: ## list the targets | 0 s
	@echo 'Target     Time      What it does (times of a second run on 2 cores; ~: not measured)'
	@awk -F ' *## *' '/^[a-z-]+:.*## / { sub(/:.*/, "", $$1); n = split($$2, part, " *[|] *"); \
		printf "%-10s %-9s %s\n", $$1, (n > 1 ? part[2] : "~"), part[1] }' $(MAKEFILE_LIST)

# Go takes the version from git, here also where the checkout belongs to another user, as in a container.
build release: export GIT_CONFIG_COUNT := 1
build release: export GIT_CONFIG_KEY_0 := safe.directory
build release: export GIT_CONFIG_VALUE_0 := $(CURDIR)
OUT := purser
TAGS :=
PGO := cmd/purser/hot.pgo

build: ## one static binary, ./purser; TAGS=serve leaves dev and the emulators out | 10 s
	CGO_ENABLED=0 go build -buildvcs=auto -trimpath -tags '$(TAGS)' -pgo='$(PGO)' -ldflags='-s -w' -o $(OUT) ./cmd/purser

setup: ## what tests need beside Go: PostgreSQL, Chromium, Node.js, nginx, Caddy, httpx (Debian, as root)
	@.ci/setup

check: ## format, vet, staticcheck, go.mod, workflows, rules of the tree, widths, licences | 10 s
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	go vet ./...
	go vet -tags serve ./cmd/purser ./internal/commands
	$(RUN_TOOL) $(STATICCHECK) ./...
	go mod tidy -diff
	@for module in $(MODULES); do (set -x; cd $$module; go vet ./...; go mod tidy -diff; \
		$(RUN_TOOL) $(STATICCHECK) ./...) || exit 1; done
	$(RUN_TOOL) $(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml
	go test -count=1 . -exact-widths

test: setup ## all packages, and the main walks in a browser (10 s if nothing changed); ARGS='-run Ledger -v' adds flags | 10 min
	@$(WITH_POSTGRES) .ci/test $(ARGS)

test-long: setup ## every test: race detector, shuffled, both databases, 200 kills an engine, fuzzing | 50 min
	@$(WITH_POSTGRES) .ci/test-long $(ARGS)

world: setup ## random histories of the whole product, with new seeds each time; MINUTES=120; ARGS='-first SEED -seeds 9' plays some again | MINUTES
	@$(WITH_POSTGRES) env PURSER_TEST_LONG=1 PURSER_TEST_WORLD=$(or $(MINUTES),60)m \
		go test ./internal/world -count=1 -timeout=0 -run '^TestWorld' -v $(or $(ARGS),-seeds 0)

mutants: setup ## faults in the code of money and access that no test notices; MINUTES=60; ARGS='-pkg PKG -n 200 -seed 2' | MINUTES
	@$(WITH_POSTGRES) go run ./internal/testkit/mutants -minutes $(or $(MINUTES),60) $(ARGS)

bench: setup ## load against a proxy without billing, in one run; BEFORE=COMMIT measures that commit in the same rounds
	@if [ -n '$(BEFORE)' ]; then \
		before=$$(mktemp -d); trap 'git worktree remove --force '$$before EXIT; \
		git worktree add --quiet --detach $$before '$(BEFORE)'; set -- --before $$before; \
	fi; go run ./bench "$$@" $(ARGS)

profile: setup ## record which calls are hot, for the compiler: cmd/purser/hot.pgo | 4 min
	go run ./bench --parts http --clients 64 --rounds 1 --duration 10s --pgo cmd/purser/hot.pgo

htmx: ## fetch the script of the live pages from the npm registry
	@dir=$$(mktemp -d); npm pack --silent --pack-destination $$dir htmx.org@$(HTMX) >/dev/null; tar -xzf $$dir/htmx.org-$(HTMX).tgz -C $$dir; \
	cp $$dir/package/dist/htmx.min.js internal/base/ui/assets/htmx.min.js; rm -r $$dir; sha256sum internal/base/ui/assets/htmx.min.js

uplot: ## fetch the script of the charts from the npm registry
	@dir=$$(mktemp -d); npm pack --silent --pack-destination $$dir uplot@$(UPLOT) >/dev/null; tar -xzf $$dir/uplot-$(UPLOT).tgz -C $$dir; \
	cp $$dir/package/dist/uPlot.iife.min.js internal/base/ui/assets/uplot.min.js; rm -r $$dir; sha256sum internal/base/ui/assets/uplot.min.js

icons: ## build the drawing with all icons from the npm registry
	@dir=$$(mktemp -d); npm pack --silent --pack-destination $$dir lucide-static@$(LUCIDE) >/dev/null; tar -xzf $$dir/lucide-static-$(LUCIDE).tgz -C $$dir; \
	{ echo '<svg xmlns="http://www.w3.org/2000/svg">'; for icon in $(ICONS); do \
		printf '<symbol id="%s" viewBox="0 0 24 24">%s</symbol>\n' "$$icon" \
			"$$(sed -n '/^>/,/^<\/svg/p' $$dir/package/icons/$$icon.svg | sed '1d;$$d' | tr -d '\n' | sed 's/  *</</g; s| />|/>|g')"; \
	done; echo '</svg>'; } >internal/base/ui/assets/icons.svg; rm -r $$dir; wc -c internal/base/ui/assets/icons.svg

fonts: ## fetch the fonts from the npm registry
	@dir=$$(mktemp -d); npm pack --silent --pack-destination $$dir @fontsource-variable/inter@$(INTER) @fontsource-variable/jetbrains-mono@$(MONO) >/dev/null; \
	for font in inter jetbrains-mono; do \
		tar -xzf $$dir/fontsource-variable-$$font-*.tgz -C $$dir package/files/$$font-latin-wght-normal.woff2; \
	done; \
	cp $$dir/package/files/inter-latin-wght-normal.woff2 internal/base/ui/assets/inter.woff2; \
	cp $$dir/package/files/jetbrains-mono-latin-wght-normal.woff2 internal/base/ui/assets/mono.woff2; \
	rm -r $$dir; sha256sum internal/base/ui/assets/*.woff2

scalar: ## fetch the script of /reference from the npm registry; it is kept compressed
	@dir=$$(mktemp -d); npm pack --silent --pack-destination $$dir @scalar/api-reference@$(SCALAR) >/dev/null; \
	tar -xzf $$dir/scalar-api-reference-$(SCALAR).tgz -C $$dir; \
	gzip -9n <$$dir/package/dist/browser/standalone.js >internal/pages/docs/assets/scalar.js.gz; \
	rm -r $$dir; sha256sum internal/pages/docs/assets/scalar.js.gz

screenshots: setup ## docs/images: the pictures of the README, taken from purser dev | 20 s
	go -C e2e run ./screenshots "$$(.ci/binary)" ../docs/images

guides: ## render docs/guide into the folder that is a part of the binary | 3 s
	go generate ./internal/pages/docs

sdks: setup ## write the SDKs' types from api/openapi.yaml, and Python's client with threads from aio.py | 15 s
	go run ./sdk/generate
	python3 sdk/python/generate.py
	cd sdk/typescript && npm ci --silent --no-audit --no-fund && npm run --silent generate

notices: ## write THIRD_PARTY_LICENSES from what is linked | 2 s
	go test -count=1 -run TestThirdPartyLicenses . -update

release: ## dist/: archives, packages, container images, their modules and checksums; ARGS='--platforms linux/amd64'
	@go run ./release $(ARGS)

module: ## rename the module, for a fork: make module NEW=example.com/fork/purser | 20 s
	@[ -n "$(NEW)" ] || { echo 'usage: make module NEW=example.com/fork/purser' >&2; exit 2; }
	@OLD=$$(go list -m) NEW=$(NEW); export OLD NEW; \
	git grep -lzIF "$$OLD" | xargs -0 perl -pi -e 's/\Q$$ENV{OLD}\E/$$ENV{NEW}/g'
	gofmt -w . # imports are sorted by their names
	go mod tidy
	go -C e2e mod tidy
	@echo 'cmd/purser/hot.pgo still has the old names: make profile measures it again.'

clean: ## what the targets above left behind | 0 s
	rm -rf purser dist bench/out
