#!/bin/bash
# packages.sh: write a .deb and a .rpm for each of amd64 and arm64 into bin/packages: the binary, the systemd unit, man
# pages and shell completion. The same commit and version give the same packages. OUT and ARCHITECTURES name another folder
# and fewer architectures.
set -euo pipefail
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
# The version of a package begins with a digit: v1.2.3-4-gabcdef becomes 1.2.3+4.gabcdef, and a bare revision 0.0.0+REVISION.
version=${VERSION#v}
case $version in [0-9]*.*) ;; *) version=0.0.0+$version ;; esac
PACKAGE_VERSION=${version/-/+}
PACKAGE_VERSION=${PACKAGE_VERSION//-/.}
export PACKAGE_VERSION

root=$(pwd)
stage=$(mktemp -d "${TMPDIR:-/tmp}"/verdict-packages.XXXXXX)
trap 'rm -rf "$stage"' EXIT
CGO_ENABLED=0 go build -trimpath -tags man -o "$stage/generate" ./cmd/verdict # of the packages that "make build" compiles
"$stage/generate" man "$stage/man"
gzip -9n "$stage"/man/*
for shell in bash zsh fish; do "$stage/generate" completion $shell >"$stage/verdict.$shell"; done
sed 's,/usr/local/bin/verdict,/usr/bin/verdict,g' config/deploy/verdict.service >"$stage/verdict.service"
cp -r LICENSE config/deploy/{README.md,loadbalancer.schema.json,examples} "$stage"
CGO_ENABLED=0 go build -C config/deploy/tools -o "$stage/tools" .
out=$(realpath -m "${OUT:-bin/packages}")
mkdir -p "$out"
for PACKAGE_ARCH in ${ARCHITECTURES:-amd64 arm64}; do
	export PACKAGE_ARCH
	make -s build GOARCH=$PACKAGE_ARCH BINARY="$stage/verdict"
	find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	for format in deb rpm; do
		target=$out/verdict_${PACKAGE_VERSION}_$PACKAGE_ARCH.$format
		(cd "$stage" && ./tools package "$root/config/deploy/nfpm.yaml" "$target")
		echo "$target"
	done
done
