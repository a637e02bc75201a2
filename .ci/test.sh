#!/bin/bash
# test.sh: run all tests that need no second kernel and no API server, and print their events as JSON. With SHUFFLE=1, those
# of a package run in random order. With RACE= (empty), the race detector does not watch.
set -euo pipefail
cd "$(dirname "$0")/.."
# All packages share one verdict. The race detector lets a program sleep for a second at its end, unless GORACE says
# otherwise. Tests that wait do so side by side (-parallel). "make lint" and "make check" vet.
mkdir -p .cache/test
export GORACE=atexit_sleep_ms=0 VERDICT_BINARY=$PWD/.cache/test/verdict
test=(go test -json -count=1 -vet=off -parallel 8 -timeout 20m ${SHUFFLE:+-shuffle on})
race=${RACE--race}
# Packages whose code starts goroutines (a test checks that none is missing), and those that wire them. For the others, the
# race detector would only cost time: their tests take up to four times as long with it, and each binary a second to link.
watched=(./cmd/verdict ./proxier ./proxier/conntrack ./proxier/dataplane ./proxier/endpointhealth ./proxier/flows ./proxier/health ./proxier/prober ./proxier/report
	./proxier/source/... ./proxier/state ./cmd/verdict/claim ./cmd/kubectl-verdict ./cmd/verdict/daemon ./cmd/verdict/dryrun
	./cmd/verdict/events ./cmd/verdict/objects ./cmd/verdict/restclient ./cmd/verdict/socket ./cmd/verdict/ui
	./e2e/clients ./e2e/cluster/rate ./e2e/cluster/workload ./e2e/demo ./e2e/lab ./e2e/mutants ./e2e/netns ./e2e/runner ./e2e/sourcetest ./e2e/chaos/inject)
# Tests that compute a lot in one goroutine take five times as long under the race detector, so these run without it.
alone='^(TestGolden|TestGoldenWithFaults|TestSuspicionsOfManyNamespaces|TestFullSets|FuzzPlanAndEngine)$'

# Package nft takes longest: it starts before the others are built, in two halves side by side.
half='^Test[P-Z]' pids=()
beside() { # beside NAME ARGUMENTS...: without the race detector, in the background
	CGO_ENABLED=0 "${test[@]}" "${@:2}" >".cache/test/$1.json" &
	pids+=($!)
}
beside nft1 ./nft -run "$half"
beside nft2 ./nft -skip "$half"
if ! go build $race -ldflags '-X main.version=v0.0.0-test' -o "$VERDICT_BINARY" ./cmd/verdict; then
	kill "${pids[@]}"
	exit 1
fi
beside alone ./cmd/verdict ./proxier ./proxier/endpointhealth -run "$alone"
beside unwatched $(comm -13 <(go list "${watched[@]}" | sort) <(go list ./... | grep -v /verdict/nft$ | sort))
code=0
"${test[@]}" $race -short -skip "$alone" "${watched[@]}" || code=1
for pid in "${pids[@]}"; do wait "$pid" || code=1; done
cat .cache/test/{nft1,nft2,alone,unwatched}.json
exit $code
