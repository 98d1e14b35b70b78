# What people run. Each target works in a clean clone with nothing but Go (and, for lint, the module proxy).

SCENARIOS ?= scenarios/
GO ?= go

# Pinned, so that a new release cannot fail an old commit.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: bench-real e2e e2e-core crds soak fuzz museum seeds fidelity run test lint race bench build fmt

# Run the shipped scenarios in the tank: make run SCENARIOS="-v scenarios/tour/first.scenario"
run:
	@$(GO) run ./cmd/towtank run $(SCENARIOS)

test:
	$(GO) test ./...

# Every scenario under twenty seeds, each twice: the verdicts and the event logs must be equal.
seeds:
	$(GO) test -count=1 -timeout 2h ./scenarios -run TestFiles -seeds 20

# Scenarios drawn from 200 seeds: others after every commit, and the range is printed. FUZZ=A..B for a certain one.
FUZZ ?= $(shell n=$$(git rev-list --count HEAD); echo $$((n * 200 + 1))..$$((n * 200 + 200)))
fuzz:
	@echo "seeds $(FUZZ)"
	$(GO) run ./cmd/towtank fuzz --seeds $(FUZZ)

# The gate of a release: 5,000 seeds of 300 steps on 3 nodes without a finding. What is found is in soak/, shrunk.
SOAK ?= 1..5000
soak:
	$(GO) run ./cmd/towtank fuzz --seeds $(SOAK) --steps 300 --nodes 3 --out soak/ --shrink --json soak.jsonl

# Bugs that others had, in our code one at a time: each must be noticed. MUSEUM="-only 45,61" for some.
museum:
	$(GO) run ./scenarios/museum $(MUSEUM)

# The custom resource definitions in the API server's own code, and what they accept against the simulator. A module of
# its own: that code brings much along.
crds:
	cd deploy/crdtest && $(GO) vet ./... && $(GO) test ./...

# The packages in which goroutines meet.
race:
	$(GO) test -race ./scenarios/fuzz -run SameHash
	$(GO) test -race ./cmd/... ./agent/shell/... ./deploy ./e2e/apiserver ./e2e/faults ./sim/kube/clients ./sim/fabric ./scenarios/spec ./datapath/...

# The models and the real thing: the switch and Open vSwitch's code on random pipelines, PIPELINES of 100 packets; the
# host and Linux on random rules, HOSTS of 60 packets (root); both from SEED on.
PIPELINES ?= 2000
SEED ?= 1000
HOSTS ?= 500
fidelity:
	TOWTANK_OVS=1 TOWTANK_PIPELINES=$(PIPELINES) TOWTANK_SEED=$(SEED) $(GO) test -count=1 -timeout 4h -run OpenVSwitch ./e2e/fidelity
	TOWTANK_ROOT=1 TOWTANK_HOSTS=$(HOSTS) TOWTANK_SEED=$(SEED) $(GO) test -count=1 -timeout 4h -run Linux ./e2e/fidelity

# The scenarios and the suites on real nodes: sudo make e2e. Its core takes a few minutes.
e2e:
	@bash e2e/run.sh all

e2e-core:
	@bash e2e/run.sh core

lint:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) run ./tools/determinism/cmd/determinism ./...
	@out=$$($(GO) run ./cmd/towtank fmt --check scenarios/) || { echo "towtank fmt -w would change:"; echo "$$out"; exit 1; }

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# On real nodes, as root: a Service update next to its floor, and a cold start next to kube-proxy's, which is built from
# its own module.
bench-real:
	$(GO) build -o bin/ ./cmd/towtank-agent
	$(GO) build -C e2e/bench -o ../../bin/kube-proxy k8s.io/kubernetes/cmd/kube-proxy
	TOWTANK_AGENT=$(CURDIR)/bin/towtank-agent TOWTANK_KUBE_PROXY=$(CURDIR)/bin/kube-proxy $(GO) test -run '^$$' -bench ColdStart -benchtime 1x -count 3 ./agent/shell/daemon
	$(GO) test -run '^$$' -bench ServiceUpdate -benchtime 60x ./agent/shell/daemon

build:
	$(GO) build -o bin/ ./cmd/...

fmt:
	gofmt -w $$(git ls-files '*.go')
	$(GO) run ./cmd/towtank fmt -w scenarios/
