#!/bin/bash
# summarize.sh: read the output of "go test -v" from standard input. Show packages, failures with their output, the names
# of what failed once more at the end, and the number of tests. Fail when a test failed, when no test passed, or when go
# itself failed. A kernel in the emulator prints no JSON, so its tests are shown with this.
awk '
	/^=== / { next }
	/^ *--- PASS/ { passed++; next }
	/^ *--- SKIP/ { skipped++; print; fflush(); next }
	/^ *--- FAIL/ { failed++; names = names $0 "\n"; print; next }
	/^(ok|FAIL|\?|panic:)/ { print; if ($1 != "ok" && $1 != "?") bad = 1; next }
	{ print; fflush() }
	END {
		printf "%s", names
		printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
		exit (failed || bad || !passed) ? 1 : 0
	}
'
