#!/bin/bash
# versions.sh: build three earlier versions of the program, each from before a large change of the ruleset's program, and
# print their files, separated by commas. What is built stays in .cache/versions.
set -euo pipefail
cd "$(dirname "$0")/../.."
versions=(
	0151bfbc92cb6eb7cbc8ce713d63c1103759387c # before errors that come at once counted as one refusal
	6ee31cb929d7f2de5a11dc6301ad00b9cb23ebd2 # before the program noticed endpoints that do not answer
	0a26d6cc26389db6ea7e01fb240e9e71c8e2dea4 # before ports shared hash tables, and a share of the affinity map
)
w=$(mktemp -d "${TMPDIR:-/tmp}"/versions.XXXXXX)
trap 'rm -rf "$w"' EXIT
files=()
for v in "${versions[@]}"; do
	file=$PWD/.cache/versions/$v
	files+=("$file")
	[ ! -x "$file" ] || continue
	git cat-file -e "$v^{commit}" 2>/dev/null || {
		echo "versions.sh: the commit $v is missing here. A shallow clone lacks it: run git fetch --unshallow" >&2
		exit 1
	}
	mkdir -p "$w/$v" "${file%/*}"
	git archive "$v" | tar -x -C "$w/$v"
	(cd "$w/$v" && CGO_ENABLED=0 go build -buildvcs=false -ldflags "-X main.version=$v" -o "$w/built" ./cmd/verdict) >&2
	mv "$w/built" "$file"
done
(IFS=,; echo "${files[*]}")
