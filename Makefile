# Everything here needs Go and make alone; race, and wasmtime in bench, need a C compiler too, and lint downloads its tool.

GO      ?= go
# How much each long target does.
SEEDS     ?= 2000
FUZZTIME  ?= 20s
SOAKTIME  ?= 2h
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS   := -s -w $(if $(VERSION),-X github.com/droverhq/drover/internal/buildinfo.version=$(VERSION))
LINT      := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.DEFAULT_GOAL := help
.PHONY: help build run cluster test race sim fuzz bench lint wasm verify-wasm check nightly soak

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

build: ## build bin/drover
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/drover ./cmd/node

run: build ## build and start one node from node.toml
	bin/drover run --config node.toml

cluster: build ## build and start three nodes on loopback
	scripts/cluster.sh bin/drover

test: ## all tests
	$(GO) test ./...

# The decoder, the metering, the reference interpreter and the harness start no goroutine: the race detector has nothing to find in minutes of fuel counting.
RACE_PACKAGES ?= $(shell $(GO) list ./... | grep -v -e /host/internal/ -e /host/harness)
RACE_FLAGS    ?=

race: ## the tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 30m $(RACE_FLAGS) $(RACE_PACKAGES)

sim: ## the cluster simulation, SEEDS=2000 seeds
	$(GO) test ./sharding/simulation -count=1 -timeout 0 -sim.seeds=$(SEEDS)

fuzz: ## every fuzz target for FUZZTIME=20s
	@scripts/fuzz.sh $(FUZZTIME)

# How often bench makes an attack and runs a kernel.
BENCH_RUNS   ?= 20
BENCH_ROUNDS ?= 15

bench: ## all benchmarks, and the host's ratios with their targets (wasmtime's need a C compiler)
	$(GO) test -run '^$$' -bench . -benchmem ./...
	cd host/bench && $(GO) run ./attacks -runs $(BENCH_RUNS)
	cd host/bench && $(GO) run . -rounds $(BENCH_ROUNDS)

lint: ## golangci-lint with .golangci.yml (builds the tool on first use)
	$(GO) run $(LINT) run ./...

wasm: ## rebuild the built-in strategies (pinned toolchain), their checksums and the examples
	strategies/build.sh
	plugins-examples/build.sh

verify-wasm: ## rebuild strategies and examples elsewhere and compare, those whose toolchain is here
	strategies/build.sh verify
	plugins-examples/build.sh verify

check: ## what CI checks besides tests: format, vet, import rules, checksums, clean tree
	@scripts/check.sh

nightly: test race check lint verify-wasm ## everything, at length
	$(GO) test ./e2e -count=1 -timeout 60m -e2e.long -e2e.bounds
	$(GO) test ./e2e -count=1 -timeout 60m -e2e.long -e2e.race
	$(MAKE) sim SEEDS=20000
	$(MAKE) fuzz FUZZTIME=5m
	DROVER_FUEL_MODULES=20000 $(GO) test -timeout 30m -run Differential ./host/internal/fuel/

soak: ## the simulation with new seeds for SOAKTIME=2h
	@scripts/soak.sh $(SOAKTIME)
