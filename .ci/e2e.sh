#!/bin/bash
# e2e.sh: run the scenarios and all other tests that need an API server, and print their events as JSON. "make e2e" builds
# what they need first.
set -euo pipefail
cd "$(dirname "$0")/.."
code=0
test() { go test -json -tags e2e -count=1 -vet=off -timeout 30m "$@" || code=1; } # "make lint" vets
test -p 1 ./e2e ./e2e/takeover ./e2e/outage ./e2e/deadnode ./e2e/flood
test ./e2e/random -time 2m -v
# "make test" runs the other tests of this package.
test -run "^($(sed -n 's/^func \(Test[A-Za-z0-9]*\)(t .*/\1/p' $(grep -l '^//go:build e2e$' config/deploy/*_test.go) | paste -sd '|'))\$" ./config/deploy
exit $code
