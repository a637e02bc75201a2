# Targets are listed by a bare "make". Tools are pinned here; binaries and caches go to bin/ and .cache/ (git-ignored).
SHELL := /bin/bash
.DEFAULT_GOAL := help

GO            ?= go
VERSION       ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
REVISION      ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS       := -s -w -X main.version=$(VERSION) -X main.revision=$(REVISION)
GOLANGCI_LINT := v2.15.0
LINT          := .cache/golangci-lint-$(GOLANGCI_LINT)
GOVULNCHECK   := v1.8.0
VULN          := .cache/govulncheck-$(GOVULNCHECK)
GOTESTSUM     := v1.13.0
SUM           := .cache/gotestsum-$(GOTESTSUM)
CYCLONEDX     := v1.10.0
TEST_PACKAGES := nftables iproute2 conntrack iptables systemd chromium fonts-dejavu-core keepalived debootstrap curl lintian rpm rpmlint
CLUSTER_PACKAGES := containerd runc containernetworking-plugins buildah procps
NEIGHBOR_PACKAGES := dbus-daemon dnsmasq-base docker.io firewalld frr ipset iptables keepalived libvirt-clients libvirt-daemon-system netavark ufw
BINARY        ?= bin/verdict
IMAGE         ?= verdict:$(VERSION)

# Runs a command that prints the events of "go test -json". Shows a line for each test or package, and at the end failures
# with their output, and the number of tests. All events stay in .cache/NAME.json.
SHOW_TESTS = mkdir -p .cache/test && $(SUM) --no-color --format-icons text --format $(1) --jsonfile .cache/test/$(2).json --raw-command --

# Tests with real packets share one verdict. Without cgo, they and the programs need the same compiled packages.
E2E_BINARY := $(CURDIR)/.cache/e2e/verdict
E2E        := $(GO) test -json -tags e2e -count=1 -vet=off -timeout 30m
e2e takeover e2e-skew e2e-upstream e2e-neighbors: export CGO_ENABLED := 0
e2e takeover e2e-skew e2e-upstream e2e-neighbors: export VERDICT_BINARY := $(E2E_BINARY)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/verdict, a static binary with version and revision stamped
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BINARY) ./cmd/verdict

.PHONY: image
image: ## write bin/verdict-image.tar, an image for amd64 and arm64 (buildah, podman or docker; IMAGE=NAME:TAG)
	VERSION='$(VERSION)' REVISION='$(REVISION)' config/deploy/image.sh '$(IMAGE)'

.PHONY: packages-os
packages-os: ## write a .deb and a .rpm for each of amd64 and arm64 into bin/packages
	VERSION='$(VERSION)' REVISION='$(REVISION)' config/deploy/packages.sh

.PHONY: demo
demo: build ## build and show packets being balanced between namespaces (root, or user namespaces)
	CGO_ENABLED=0 $(GO) build -o .cache/demo ./e2e/demo
	.cache/demo bin/verdict

# Without cgo, packages are compiled only once for vet, the program and the tests. All tests share one program. Those that
# draw at random draw less (-short).
.PHONY: check
check: export CGO_ENABLED := 0
check: ## vet, and run the tests that need neither root nor network namespaces: a minute
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt these files:" $$unformatted >&2; exit 1; }
	$(GO) vet -tags e2e,ipvs ./...
	$(GO) build -ldflags '-X main.version=v0.0.0-test' -o .cache/check/verdict ./cmd/verdict
	VERDICT_BINARY=$(CURDIR)/.cache/check/verdict $(GO) test -json -tags nokernel -short -count=1 -vet=off -parallel 8 ./... | .ci/counts.sh

.PHONY: test
test: packages $(SUM) ## run all tests that need no second kernel and no API server, with the race detector where it can find anything: 4 minutes
	$(call SHOW_TESTS,pkgname,test) .ci/test.sh

.PHONY: e2e
e2e: packages $(SUM) $(E2E_BINARY) ## run the scenarios with real packets against a real kube-apiserver, and from manifests (root; builds the API server once)
	e2e/controlplane/build.sh
	@e2e/packages.sh bird2 curl frr keepalived
	$(call SHOW_TESTS,testname,e2e) .ci/e2e.sh

.PHONY: $(E2E_BINARY)
$(E2E_BINARY):
	$(GO) build -ldflags '-X main.version=v0.0.0-test' -o $@ ./cmd/verdict

.PHONY: screenshots
screenshots: packages ## take pictures of the page into .cache/screenshots: 3 and 2,000 Services, wide and narrow, light and dark (root)
	rm -rf .cache/screenshots && mkdir -p .cache/screenshots
	VERDICT_SCREENSHOTS=$(CURDIR)/.cache/screenshots $(GO) test ./cmd/verdict/ui -count=1 -run 'TestLooks|TestPage'
	@echo "$$(ls .cache/screenshots | wc -l) pictures are in $(CURDIR)/.cache/screenshots"

.PHONY: flakes
flakes: packages ## run the tests of "make test" N times (default 20) in random order beside load, and list each that failed once (SUITE=e2e: of "make e2e")
	SHUFFLE=1 RACE= .ci/flakes.sh $(or $(N),20) .ci/$(or $(SUITE),test).sh

.PHONY: takeover
takeover: packages $(SUM) $(E2E_BINARY) ## go from kube-proxy to Verdict and back under load, in three modes of kube-proxy (root; RUNS=20; part of e2e with 2 runs)
	e2e/controlplane/build.sh
	export TAKEOVER_RUNS=$(or $(RUNS),20); $(call SHOW_TESTS,testname,takeover) $(E2E) ./e2e/takeover

.PHONY: e2e-upstream
e2e-upstream: packages $(SUM) $(E2E_BINARY) ## run the same scenarios against upstream kube-proxy, to check what they expect
	e2e/controlplane/build.sh
	$(call SHOW_TESTS,testname,upstream) $(E2E) ./e2e -proxy=kube-proxy

# The versions of Kubernetes that the chart claims. The API server of each is upgraded to the newest one.
KUBERNETES ?= 1.34.4 1.35.4 1.36.3 1.37.1

.PHONY: e2e-skew
e2e-skew: $(KUBERNETES:%=e2e-skew-%) ## run the scenarios of the API server, RBAC and an upgrade of the API server with each version of Kubernetes (root; KUBERNETES="1.34.4 1.35.4")

e2e-skew-%: packages $(SUM) $(E2E_BINARY)
	@e2e/packages.sh bird2 curl frr keepalived
	VERDICT_CONTROL_PLANE="$$(KUBERNETES=$* e2e/controlplane/build.sh etcd kube-apiserver)" && \
		VERDICT_UPGRADE_TO="$$(e2e/controlplane/build.sh etcd kube-apiserver)" && export VERDICT_CONTROL_PLANE VERDICT_UPGRADE_TO && \
		$(call SHOW_TESTS,testname,skew-$*) .ci/skew.sh

.PHONY: e2e-cluster
e2e-cluster: build $(SUM) ## run Verdict as a DaemonSet on two nodes with kubelets, and replace kube-proxy as documented (root; not part of CI)
	@e2e/packages.sh $(TEST_PACKAGES) $(CLUSTER_PACKAGES)
	$(call SHOW_TESTS,standard-verbose,cluster) $(E2E) ./e2e/cluster

.PHONY: e2e-neighbors
e2e-neighbors: packages $(SUM) $(E2E_BINARY) ## run Verdict beside firewalls, Docker and others on one node (root; NEIGHBORS='Ufw|Docker' for some)
	@e2e/packages.sh $(NEIGHBOR_PACKAGES)
	$(call SHOW_TESTS,testname,neighbors) $(E2E) ./e2e/neighbors $(if $(NEIGHBORS),-run '^Test($(NEIGHBORS))$$')

.PHONY: chaos
chaos: packages build $(SUM) ## run the daemon under random faults and check every round (root; ROUNDS=2000 SEED=1; 200 rounds take 10 minutes)
	$(call SHOW_TESTS,standard-verbose,chaos) $(E2E) -timeout 0 ./e2e/chaos -verdict $(abspath $(BINARY)) \
		$(if $(findstring -manifests,$(CHAOS)),,-binaries "$$(e2e/controlplane/build.sh etcd kube-apiserver)") \
		-rounds $(or $(ROUNDS),200) -seed $(or $(SEED),0) $(CHAOS)

.PHONY: chaos-fast-path
chaos-fast-path: ## the same from manifests, under Debian's kernel in QEMU: each third round with the fast path (root, amd64; ROUNDS=15 SEED=1; 1 to 3 minutes a round)
	e2e/ipvskernel/setup.sh
	TAGS=e2e TIMEOUT=$$((600 * ($(or $(ROUNDS),15) + 1))) e2e/ipvskernel/test.sh ./e2e/chaos -- -test.run '^TestChaos$$' -manifests -slow 8 \
		-rounds $(or $(ROUNDS),15) -seed $(or $(SEED),0) $(CHAOS)

.PHONY: downgrade
downgrade: ## go back and forth over three earlier versions of the program, under the clients of chaos (root; builds each once; ROUNDS=60)
	others="$$(e2e/chaos/versions.sh)" && $(MAKE) chaos ROUNDS=$(or $(ROUNDS),60) CHAOS="-manifests -only 'version,killed,burst' -other $$others"

.PHONY: soak
soak: packages build ## run the daemon for TIME (default 30m) under churn and foreign edits: memory, descriptors and goroutines stay flat (root)
	$(MAKE) chaos CHAOS='-soak $(or $(TIME),30m) $(CHAOS)'

.PHONY: oracle
oracle: ## compare the rules with an independent model of the Service API, for PAIRS=1000000 of a random state and a packet (2 minutes)
	$(GO) test -tags nokernel ./cmd/verdict/explain -run '^TestOracle' -v -timeout 60m -oracle $(or $(PAIRS),1000000) -oracle-seed $(or $(SEED),1)

.PHONY: mutants
mutants: ## change the program in N=1000 small ways, and list the changes that no test of "make check" notices (MUTANTS="-test -targets ./nft")
	$(GO) run ./e2e/mutants -n $(or $(N),1000) -seed $(or $(SEED),1) $(MUTANTS)

.PHONY: fuzz
fuzz: ## fuzz each decoder, and plan and engine together, for FUZZTIME each (default 30s), or EXECS=10000000 executions each
	@FUZZTIME=$(FUZZTIME) EXECS=$(EXECS) .ci/fuzz.sh

SIZES ?= 100 1000 10000 50000

# Each size has a process of its own, because memory is that of the process.
.PHONY: bench
bench: ## measure changes, first sync, memory and connections at SIZES="100 1000 10000 50000" Services (root, 4 minutes; COUNT=6 SAVE=before.txt for benchstat)
	$(GO) test -c -o .cache/bench.test ./e2e/bench
	set -eo pipefail; (cd e2e/bench; for i in $$(seq $(or $(COUNT),1)); do for part in $(SIZES:%='services=%$$') case; do \
		../../.cache/bench.test -test.run '^$$' -test.bench "/$$part" -test.benchtime 5s; done; done) | tee $(or $(SAVE),.cache/bench.txt)
	e2e/benchtable.sh services $(or $(SAVE),.cache/bench.txt)

UPSTREAM_BENCH = set -eo pipefail; upstream="$$(e2e/controlplane/build.sh)"; $(GO) test ./e2e/benchupstream -run '^$$' -benchtime 1x -timeout 0 \
		-verdict $(CURDIR)/bin/verdict -upstream "$$upstream" -saved $(CURDIR)/.cache/etcd

.PHONY: bench-upstream
bench-upstream: packages build ## measure Verdict beside kube-proxy; write e2e/change-latency.svg and the table of e2e/RESULTS.md (root, 25 minutes; BENCH="-sizes 100,1000" writes none)
	$(UPSTREAM_BENCH) -bench 'Proxy|Transaction' $(or $(BENCH),-plot $(CURDIR)/e2e/change-latency.svg) | tee .cache/bench-upstream.txt
	e2e/benchtable.sh proxy .cache/bench-upstream.txt $(if $(BENCH),,e2e/RESULTS.md)

.PHONY: bench-sizes
bench-sizes: packages build ## the same with 44,000 Services, and with 250,011 endpoints; write e2e/large-clusters.svg (root, 2 hours; BENCH="-cases 500:5000" PROXY=verdict)
	$(UPSTREAM_BENCH) -bench 'Sizes/./proxy=($(or $(PROXY),verdict|nftables|iptables))$$' \
		$(or $(BENCH),-plot $(CURDIR)/e2e/large-clusters.svg) | tee .cache/bench-sizes.txt
	e2e/benchtable.sh proxy .cache/bench-sizes.txt $(if $(BENCH),,e2e/RESULTS.md)

.PHONY: bench-readers
bench-readers: packages build ## let 50, 200 and 500 readers of Verdict, and of kube-proxy, follow one API server (root, 20 minutes; BENCH="-readers 10")
	$(UPSTREAM_BENCH) -bench 'Readers|Sent' $(BENCH) | tee .cache/bench-readers.txt
	e2e/benchtable.sh reader .cache/bench-readers.txt $(if $(BENCH),,e2e/RESULTS.md)

.PHONY: bench-million
bench-million: packages ## 100,000 Services with 1,000,000 endpoints: first sync, memory, a change, a restart, a foreign flush (root, 5 minutes; MILLION=1000:10000)
	set -eo pipefail; $(GO) test -tags e2e ./e2e/flood -run '^$$' -bench Million -benchtime 1x -timeout 0 \
		$(if $(MILLION),-million $(MILLION)) | tee .cache/bench-million.txt
	e2e/benchtable.sh cluster .cache/bench-million.txt $(if $(MILLION),,e2e/RESULTS.md)

.PHONY: bench-daemons
bench-daemons: packages build ## let 50 nodes with Verdict follow one API server, and ask their metrics for the latency of a change (root, 3 minutes)
	$(UPSTREAM_BENCH) -bench Daemons -seconds 60 | tee .cache/bench-daemons.txt
	e2e/benchtable.sh daemons .cache/bench-daemons.txt

.PHONY: bench-deadnode
bench-deadnode: packages ## let a node vanish under Verdict and under kube-proxy (root, 2 minutes)
	$(GO) test -tags e2e ./e2e/deadnode -run '^$$' -bench Vanish -benchtime 1x -upstream "$$(e2e/controlplane/build.sh)"

.PHONY: bench-fleet
bench-fleet: packages ## let one of several balancers die under 1,000 open connections (root, 5 minutes)
	@e2e/packages.sh bird2 curl frr keepalived
	$(GO) test -tags e2e -count=1 -v ./e2e/fleet

.PHONY: bench-rollout
bench-rollout: build ## update a Deployment again and again under Verdict and kube-proxy (root, 15 minutes; ROLLOUTS=20)
	@e2e/packages.sh $(TEST_PACKAGES) $(CLUSTER_PACKAGES)
	$(GO) test -tags e2e ./e2e/cluster -run '^$$' -bench Rollout -benchtime 1x -timeout 60m -rollouts $(or $(ROLLOUTS),20) \
		-rollout-results $(CURDIR)/.cache/rollout

.PHONY: bench-flood
bench-flood: ## measure new connections and changes of others during floods of packets and of changes (root, 2 minutes)
	$(GO) test -tags e2e ./e2e/flood -run '^$$' -bench Flood -benchtime 16x

.PHONY: bench-hostile
bench-hostile: ## measure changes of others, connections and memory while tenants attack: 1,000 objects of 1 MB, ranges, hash tables, flows (root, 10 minutes; CHANGES=1000 ATTACK=range)
	$(GO) test -tags e2e ./e2e/flood -run '^$$' -bench '$(if $(ATTACK),Attacks/.*$(ATTACK),Hostile|Attacks)' -benchtime 1x -timeout 60m -changes $(or $(CHANGES),300)

.PHONY: bench-growth
bench-growth: ## grow each list that a tenant can write, alone and beside each other one: a table of time and memory, and what grows too fast (5 minutes)
	$(GO) test ./proxier -run '^$$' -bench Growth -benchtime 1x -timeout 30m

.PHONY: bench-checks
bench-checks: ## measure flows, CPU and changes of others while a tenant asks for 10,000 checks a second (root, 4 minutes)
	$(GO) test -tags e2e ./e2e/flood -run '^$$' -bench Checks -benchtime 1x

.PHONY: bench-converted
bench-converted: build ## run 2,000 balancers with checks, converted from keepalived, for 10 minutes: memory and descriptors stay flat (root; SECONDS=600)
	$(GO) test -tags e2e ./e2e/flood -run '^$$' -bench Converted -benchtime $(or $(SECONDS),600)x -timeout 30m

.PHONY: profile
profile: ## write CPU and heap profiles of first sync and churn into .cache/profiles
	mkdir -p .cache/profiles
	profile() { $(GO) test ./e2e/bench -run '^$$' -bench "$$2\$$" -benchtime $$3 -outputdir .cache/profiles \
		-cpuprofile $$1.cpu -memprofile $$1.heap -o .cache/profiles/bench.test; }; \
		profile first-sync FirstSync/services=10000 3x && profile churn EndpointReplacedBusy/services=10000 10s && \
		profile large EndpointReplacedBusy/case=one-service 10s

IPVS_TESTS := ./ipvsctl ./nft ./cmd/verdict/list ./e2e/ipvs ./e2e/deadnode ./e2e/fastpath ./e2e/takeover ./e2e/random

# TAGGED=1 leaves out what passes or fails under any kernel; "make test" and "make e2e" run that.
.PHONY: e2e-ipvs
e2e-ipvs: export TAGGED ?= 1
e2e-ipvs: ## run the tests that need IPVS under a Debian kernel in QEMU (root, amd64; TAGGED= for all tests of their packages)
	e2e/ipvskernel/setup.sh
	set -eo pipefail; VERDICT_CONTROL_PLANE="$$(e2e/controlplane/build.sh)"; export VERDICT_CONTROL_PLANE TIMEOUT=3600; \
		export PASS_ENV="VERDICT_CONTROL_PLANE TAKEOVER_RUNS"; \
		e2e/ipvskernel/test.sh $(IPVS_TESTS) 2>&1 | e2e/summarize.sh

.PHONY: takeover-ipvs
takeover-ipvs: ## go from kube-proxy's mode ipvs to Verdict and back under load, in the same kernel (root; RUNS=20; part of e2e-ipvs with 1 run)
	TAKEOVER_RUNS=$(or $(RUNS),20) $(MAKE) e2e-ipvs IPVS_TESTS=./e2e/takeover

# Series of Debian's kernels for e2e-kernels; "all": each that is in the archives. An emulated processor is slow, so
# the tests are those that depend on the kernel most: what nf_tables accepts and lists, and where packets go.
KERNELS          ?= 6.1 6.12 6.18 7.3
# Tests that load text with nft are not among them: they depend on the version of nft.
KERNEL_TESTS     := ^Test(Probe.*|Cleanup|Packets|Affinity|AffinityTimeout|RefusedPackets|SourceRange.*|LoopbackGuard|GuardedPackets)$$
KERNEL_SCENARIOS := TestScenarios/manifests/.*/(conntrack|families|nodeports)$$/
# Where the fast path stays off because of a flaw of the kernel (6.14 to 7.0), the others are skipped, and the first one shows that.
KERNEL_FAST_PATH := ^Test(FlawedKernel|Offload|End|Cleaned|Packets|Routes|Kinds|Bridge)$$

.PHONY: e2e-kernels
e2e-kernels: ## run tests of the ruleset and scenarios under other Debian kernels in QEMU (root, amd64; KERNELS="6.1 7.3")
	set -eo pipefail; KERNELS="$$(e2e/ipvskernel/kernels.sh expand $(KERNELS))"; export KERNELS TIMEOUT=1200; \
		e2e/ipvskernel/setup.sh; { code=0; \
		TAGS= e2e/ipvskernel/test.sh ./nft -- -test.run '$(KERNEL_TESTS)' || code=1; \
		TAGS=e2e e2e/ipvskernel/test.sh ./e2e -- -source manifests -test.run '$(KERNEL_SCENARIOS)' || code=1; \
		e2e/ipvskernel/test.sh ./e2e/fastpath -- -test.run '$(KERNEL_FAST_PATH)' || code=1; \
		exit $$code; } 2>&1 | e2e/summarize.sh

.PHONY: bench-ipvs
bench-ipvs: ## measure a change of one endpoint among 100 and 5,000 Services served by IPVS, under the same kernel (root, 2 minutes)
	e2e/ipvskernel/setup.sh
	e2e/ipvskernel/test.sh ./e2e/ipvs -- -test.run '^$$' -test.bench EndpointChange -test.benchtime 500x -test.count 3

.PHONY: bench-path
bench-path: ## count the instructions of a packet of an established connection, by the rules of the node, in the same kernel (root, 10 minutes)
	e2e/ipvskernel/setup.sh
	set -eo pipefail; VERDICT_CONTROL_PLANE="$$(e2e/controlplane/build.sh kube-proxy)"; export VERDICT_CONTROL_PLANE; \
		ICOUNT=1 TIMEOUT=2400 PASS_ENV=VERDICT_CONTROL_PLANE e2e/ipvskernel/test.sh ./e2e/takeover -- -test.run '^$$' -test.bench Established -test.benchtime 1x

.PHONY: bench-fast-path
bench-fast-path: ## measure what long and short connections cost with and without the fast path, in the same kernel; write e2e/fast-path.svg (root, 10 minutes)
	e2e/ipvskernel/setup.sh
	set -eo pipefail; VERDICT_CONTROL_PLANE="$$(e2e/controlplane/build.sh kube-proxy)"; export VERDICT_CONTROL_PLANE TIMEOUT=2400; \
		bench() { PASS_ENV="VERDICT_CONTROL_PLANE ICOUNT PLOT" e2e/ipvskernel/test.sh ./e2e/takeover -- -test.run '^$$' -test.bench FastPath -test.benchtime 1x; }; \
		{ ICOUNT=1 PLOT=1 bench; bench; } | tee .cache/bench-fast-path.txt; \
		sed -n '/<?xml/,/<\/svg>/p' .cache/bench-fast-path.txt >e2e/fast-path.svg

.PHONY: lint
lint: export CGO_ENABLED := 0
lint: $(LINT) $(VULN) ## check formatting, vet, static analysis, import rules and known vulnerabilities (VULNDB, VULNCHECK=required)
	$(LINT) run ./...
	$(GO) vet -tags nokernel ./...
	.ci/vulncheck.sh $(VULN) ./...

$(LINT):
	@mkdir -p .cache/tools
	GOBIN=$(CURDIR)/.cache/tools $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	mv .cache/tools/golangci-lint $@

$(SUM):
	@mkdir -p .cache/tools
	GOBIN=$(CURDIR)/.cache/tools $(GO) install gotest.tools/gotestsum@$(GOTESTSUM)
	mv .cache/tools/gotestsum $@

$(VULN):
	@mkdir -p .cache/tools
	GOBIN=$(CURDIR)/.cache/tools $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	mv .cache/tools/govulncheck $@

.PHONY: sbom
sbom: build ## write bin/verdict.sbom.json: the modules in bin/verdict, with versions and checksums (CycloneDX)
	GOARCH= $(GO) run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX) bin -json -std -noserial -notimestamp -version '$(VERSION)' -output $(BINARY).sbom.json $(BINARY)

.PHONY: release
release: ## write bin/release: binaries, packages, chart, image, bills of materials and checksums (VERSION=v1.2.3; RELEASE_KEY=FILE signs them)
	VERSION='$(VERSION)' REVISION='$(REVISION)' IMAGE='$(IMAGE)' config/deploy/release.sh

.PHONY: reproducible
reproducible: ## build the latest commit twice, in different surroundings, and compare the binaries
	.ci/reproducible.sh

.PHONY: full
full: ## run all there is, for a release: hours (root, amd64)
	$(MAKE) release VERSION=v0.0.0-rc.0
	$(MAKE) lint reproducible sbom test e2e e2e-skew demo e2e-neighbors e2e-kernels e2e-cluster
	$(MAKE) e2e-ipvs TAGGED=
	$(MAKE) chaos SEED=1 ROUNDS=2000
	$(MAKE) downgrade soak

.PHONY: tools
tools: $(LINT) $(SUM) $(VULN) # build the tools that other targets need

.PHONY: packages
packages: # install the Debian packages that tests need, or name them
	@e2e/packages.sh $(TEST_PACKAGES)

.PHONY: clean
clean: ## remove binaries and caches
	rm -rf bin .cache
