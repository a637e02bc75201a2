#!/bin/bash
# test.sh: run all tests that need no second kernel and no API server, and print their events as JSON.
set -euo pipefail
cd "$(dirname "$0")/.."
# All packages share one verdict. The race detector lets a program sleep for a second at its end, unless GORACE says
# otherwise. Tests that wait do so side by side (-parallel). "make lint" and "make check" vet.
export GORACE=atexit_sleep_ms=0 VERDICT_BINARY=$PWD/.cache/test/verdict
test=(go test -json -count=1 -vet=off -parallel 8 -timeout 20m)
# Packages whose code starts no goroutine (a test checks it). Races in their use show in the tests of proxier. With the
# race detector the tests of nft take four times as long.
sequential=(./nft/... ./ipvsctl/...)

go build -race -ldflags '-X main.version=v0.0.0-test' -o "$VERDICT_BINARY" ./cmd/verdict
"${test[@]}" "${sequential[@]}" >.cache/test/sequential.json &
beside=$!
code=0
mapfile -t others < <(comm -13 <(go list "${sequential[@]}" | sort) <(go list ./... | sort))
"${test[@]}" -race "${others[@]}" || code=1
wait "$beside" || code=1
cat .cache/test/sequential.json
exit $code
