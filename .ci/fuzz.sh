#!/bin/bash
# fuzz.sh: run each fuzz target, one after the other.
# FUZZTIME (default 30s) is the time for each target. With EXECS=NUMBER, each runs so often, and without guidance by coverage:
# 20,000 times a second instead of 450 to 18,000, because nothing counts the branches of client-go. Such a run begins with
# the inputs that guided runs have found.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
go list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r package dir; do
	for target in $(go test -vet=off -list '^Fuzz' "$package" | grep '^Fuzz'); do
		echo "=== $package $target"
		if [ -z "${EXECS:-}" ]; then
			go test -vet=off -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" "$package" </dev/null
			continue
		fi
		go test -vet=off -c -o .cache/fuzz.test "$package"
		(test=$PWD/.cache/fuzz.test && cd "$dir" && "$test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "${EXECS}x" \
			-test.fuzzminimizetime 0x -test.fuzzcachedir "$(go env GOCACHE)/fuzz/$package" </dev/null)
	done
done
