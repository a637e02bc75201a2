#!/bin/bash
# packages.sh: write a .deb and a .rpm for each of amd64 and arm64 into bin/packages: the binary, the systemd unit, man
# pages, shell completion, and scripts for installation, upgrade and removal. The same commit and version give the same packages. OUT and ARCHITECTURES name another folder
# and fewer architectures.
set -euo pipefail
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
# Versions sort as the builds came: v1.2.3-rc.1 becomes 1.2.3~rc.1, v1.2.3-4-gabcdef (the fourth commit after the tag)
# 1.2.3+4.gabcdef, and a bare revision 0.0.0+DATE.REVISION.
version=${VERSION#v}
dirty=
if [[ $version == *-dirty ]]; then version=${version%-dirty} dirty=.dirty; fi
if [[ $version =~ ^([0-9][^-]*\.[^-]*)(-[a-z][^-]*)?(-[0-9]+-g[0-9a-f]+)?$ ]]; then
	after=${BASH_REMATCH[3]:-${dirty:+-0}}
	version=${BASH_REMATCH[1]}${BASH_REMATCH[2]/-/\~}${after/-/+}$dirty
else
	version=0.0.0+$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$version$dirty
fi
PACKAGE_VERSION=${version//-/.}
export PACKAGE_VERSION

root=$(pwd)
stage=$(mktemp -d "${TMPDIR:-/tmp}"/verdict-packages.XXXXXX)
trap 'rm -rf "$stage"' EXIT
CGO_ENABLED=0 go build -trimpath -tags man -o "$stage/generate" ./cmd/verdict # of the packages that "make build" compiles
"$stage/generate" man "$stage/man"
gzip -9n "$stage"/man/*
for shell in bash zsh fish; do "$stage/generate" completion $shell >"$stage/verdict.$shell"; done
cp config/deploy/verdict{,-leave}.service "$stage"
sed -i 's,/usr/local/bin/verdict,/usr/bin/verdict,g' "$stage"/*.service
cp -r LICENSE .github/CHANGELOG.md config/deploy/{loadbalancer.schema.json,examples,package} "$stage"
# In the packaged README, links to other documents lead to those of this revision.
source=https://github.com/verdict-proxy/verdict/blob/${REVISION:-main}/config/deploy
sed -E "s,\]\(([^#:)][^:)]*)\),]($source/\1),g" config/deploy/README.md >"$stage/README.md"
printf 'verdict (%s) unstable; urgency=medium\n\n  * What changed is in CHANGELOG.md, beside this file.\n\n -- %s  %s\n' "$PACKAGE_VERSION" \
	"$(sed -n 's/^maintainer: //p' config/deploy/nfpm.yaml)" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$stage/changelog.gz"
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
