#!/bin/bash
# e2e.sh: run the scenarios and all other tests that need an API server, and print their events as JSON. "make e2e" builds
# what they need first. With SHUFFLE=1, those of a package run in random order.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache/test
test=(go test -json -tags e2e -count=1 -vet=off -timeout 30m ${SHUFFLE:+-shuffle on}) # "make lint" vets
# Of this package, "make test" runs the tests without the tag.
deploy=./config/deploy
tagged=$(sed -n 's/^func \(Test[A-Za-z0-9]*\)(t .*/\1/p' $(grep -l '^//go:build e2e$' "$deploy"/*_test.go) | paste -sd '|')

# Two packages at a time, because most tests wait.
code=0
"${test[@]}" -p 1 ./e2e/outage ./e2e/deadnode >.cache/test/waiting.json &
beside=$!
"${test[@]}" -p 1 ./e2e ./e2e/takeover ./e2e/flood ./e2e/fleet || code=1
"${test[@]}" -run "^($tagged)\$" "$deploy" || code=1
"${test[@]}" ./e2e/oracle -states=300 || code=1
wait "$beside" || code=1
cat .cache/test/waiting.json
"${test[@]}" ./e2e/random -time=2m || code=1
exit $code
