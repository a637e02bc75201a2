#!/bin/bash
# counts.sh: read the events of "go test -json" from standard input. Show a line for each package, failed tests with their
# output, and at the end the number of tests. Fail when a test or a build failed, or when no test passed. "make check" uses
# it, because gotestsum, which shows other suites, must be built first.
awk '
	# Events are many, and regular expressions slow: the output of a test is decoded only if the test fails.
	function field(name,    at, s) {
		at = index($0, "\"" name "\":\"")
		if (!at) return ""
		s = substr($0, at + length(name) + 4)
		return substr(s, 1, index(s, "\"") - 1)
	}
	function text(line,    s) {
		s = substr(line, index(line, "\"Output\":\"") + 10)
		sub(/"}$/, "", s)
		gsub(/\\n/, "\n", s); gsub(/\\t/, "\t", s); gsub(/\\"/, "\"", s); gsub(/\\u003c/, "<", s); gsub(/\\u003e/, ">", s)
		gsub(/\\u0026/, "\\&", s); gsub(/\\\\/, "\\", s)
		return s
	}
	function forget(key, show,    i) {
		for (i = 1; i <= lines[key]; i++) { if (show) printf "%s", text(output[key, i]); delete output[key, i] }
		delete lines[key]
	}
	!/^{"/ { print; next }
	{ action = field("Action"); test = field("Test"); key = field("Package") " " test }
	action == "build-output" { printf "%s", text($0) }
	action == "build-fail" { bad = 1 }
	action == "output" && test != "" { output[key, ++lines[key]] = $0 }
	action == "output" && test == "" { line = text($0); if (line !~ /^(PASS|\?)/) { printf "%s", line; fflush() } }
	action == "pass" && test != "" { passed++; forget(key) }
	action == "skip" && test != "" { skipped++; forget(key, 1) }
	action == "fail" && test != "" { failed++; names = names "\n" key; forget(key, 1) }
	action == "fail" && test == "" { bad = 1 }
	END {
		if (names != "") printf "\nfailed:%s\n", names
		printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
		exit (failed || bad || !passed) ? 1 : 0
	}
'
