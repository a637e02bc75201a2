#!/bin/bash
# reproducible.sh: build the latest commit twice, and fail unless both binaries are equal. The first build is that of this
# repository. The second one is as far from it as possible: sources without a repository, another folder, another home,
# and an empty build cache.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
w=$(mktemp -d "${TMPDIR:-/tmp}"/reproducible.XXXXXX)
trap 'rm -rf "$w"' EXIT
git clone -q "$root" "$w/first"
mkdir -p "$w/another folder/home"
git -C "$root" archive HEAD | tar -x -C "$w/another folder"
version=$(git -C "$w/first" describe --tags --always) revision=$(git -C "$w/first" rev-parse HEAD)
export GOFLAGS=-mod=readonly # the default: flags of this machine could hide a difference
make -s -C "$w/first" build
(
	GOMODCACHE=$(go env GOMODCACHE) && export GOMODCACHE
	export HOME="$w/another folder/home" GOCACHE="$w/cache" GOPATH="$w/path"
	umask 077
	make -s -C "$w/another folder" build VERSION="$version" REVISION="$revision"
)
sums=$(cd "$w" && sha256sum first/bin/verdict "another folder/bin/verdict")
echo "$sums"
[ "$(cut -d' ' -f1 <<<"$sums" | uniq | wc -l)" = 1 ] || { echo "reproducible: the two builds of $revision differ" >&2; exit 1; }
