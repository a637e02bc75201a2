#!/bin/bash
# summarize.sh: read the output of "go test -v" from standard input. Show packages, failures with their output, and the
# number of tests. Fail when a test failed, when no test passed, or when go itself failed.
awk '
	/^=== / { next }
	/^ *--- PASS/ { passed++; next }
	/^ *--- SKIP/ { skipped++; print; next }
	/^ *--- FAIL/ { failed++; print; next }
	/^(ok|FAIL|\?|panic:)/ { print; if ($1 != "ok" && $1 != "?") bad = 1; next }
	{ print }
	END {
		printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
		exit (failed || bad || !passed) ? 1 : 0
	}
'
