#!/bin/bash
# skew.sh: run the tests that depend on the version of the API server, which is that of VERDICT_CONTROL_PLANE, and print their
# events as JSON. "make e2e-skew" builds what they need first. SCENARIOS chooses some scenarios.
set -euo pipefail
cd "$(dirname "$0")/.."
test=(go test -json -tags e2e -count=1 -vet=off -timeout 60m)
code=0
"${test[@]}" -run '^TestDeployed$' ./config/deploy || code=1
"${test[@]}" -run '^Test(Upgrade|ServerKilled)$' ./e2e/outage || code=1
"${test[@]}" -run "^TestScenarios\$/${SCENARIOS:-apiserver}" ./e2e -source apiserver || code=1
exit $code
