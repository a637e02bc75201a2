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
# Packages whose code starts no goroutine (a test checks it). Races in their use show in the tests of proxier. With the
# race detector the tests of nft take four times as long.
sequential=(./nft/... ./ipvsctl/... ./proxier/claims/... ./proxier/plan/... ./proxier/endpointhealth/checks/... ./proxier/endpointhealth/suspicion/...
	./proxier/source/convert/... ./cmd/verdict/convert/... ./cmd/verdict/preflight/... ./e2e/chaos/ruleset/...)
# The race detector makes these five times as long, so the other tests leave them out.
goldens=(./cmd/verdict ./cmd/verdict/explain -run '^Test(Golden(WithFaults)?|Oracle.*)$')
apart='^TestGolden$/^limits$|^TestGoldenWithFaults$|^TestOracle'

go build $race -ldflags '-X main.version=v0.0.0-test' -o "$VERDICT_BINARY" ./cmd/verdict
code=0
(
	"${test[@]}" "${sequential[@]}" || code=1
	CGO_ENABLED=0 "${test[@]}" "${goldens[@]}" || code=1
	exit $code
) >.cache/test/sequential.json &
beside=$!
mapfile -t others < <(comm -13 <(go list "${sequential[@]}" | sort) <(go list ./... | sort))
"${test[@]}" $race -short -skip "$apart" "${others[@]}" || code=1
wait "$beside" || code=1
cat .cache/test/sequential.json
exit $code
