#!/bin/bash
# table.sh LOGS EVENTS SECONDS: print a table of the steps that .ci/run has noted in LOGS/steps, with the time, the time of the
# processors, the number of tests that passed, failed and were skipped, and their sums. It fails when a step has failed, or no
# test has passed.
# The numbers of a step are those of EVENTS/STEP.json, the events of "go test -json", or of the last line of its log that
# says "N passed, N failed, N skipped". Each test that failed is named once more, with the first thing that it said: a record
# of a run may keep its end alone.
set -euo pipefail
logs=$1 events=$2 total=$3

count() { # STEP: passed, failed, skipped; nothing for a step without tests
	if [ -e "$events/$1.json" ]; then
		awk '/"Test":/ && match($0, /"Action":"(pass|fail|skip)"/) { n[substr($0, RSTART + 10, 4)]++ }
			END { printf "%d\t%d\t%d\n", n["pass"], n["fail"], n["skip"] }' "$events/$1.json"
	else
		awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { line = $1 + 0 "\t" $3 + 0 "\t" $5 + 0 } END { print line }' "$logs/$1.log"
	fi
}

failures() { # what the tests that failed said
	local tests='"Action":"fail".*"Test":"' said='"Output":" +[A-Za-z0-9_]+\.go:[0-9]+: '
	cat "$events"/*.json 2>/dev/null | grep -E "$tests|$said" | awk '
		function field(name,    s) { s = substr($0, index($0, "\"" name "\":\"") + length(name) + 4); return substr(s, 1, index(s, "\"") - 1) }
		{ key = field("Package") " " field("Test") }
		/"Action":"fail"/ { print "\n" key "\n" said[key]; delete said[key]; next }
		{ sub(/\\n"}$/, "") }
		lines[key]++ < 5 { said[key] = said[key] substr($0, index($0, "\"Output\":\"") + 10, 600) "\n" }' || true # grep may find nothing
}

failures
while IFS=$'\t' read -r name seconds code cpu; do
	printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$seconds" "$code" "$cpu" "$(count "$name")"
done <"$logs/steps" | awk -F '\t' -v total="$total" '
	BEGIN { printf "\n%-16s %8s %8s %8s %8s %8s\n", "step", "seconds", "cpu", "passed", "failed", "skipped" }
	{
		printf "%-16s %8d %8d %8s %8s %8s%s\n", $1, $2, $4, $5, $6, $7, $3 ? "  FAILED, exit code " $3 : ""
		cpu += $4; passed += $5; failed += $6; skipped += $7
		if ($3) bad = bad " " $1
		if ($3 && !$6) failed++ # what is no test can fail as well
	}
	END {
		printf "%-16s %8d %8d %8d %8d %8d\n\n", "all", total, cpu, passed, failed, skipped
		if (bad) print "steps that failed:" bad
		printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
		exit (bad || failed || !passed)
	}'
