#!/bin/sh
# packages.sh PACKAGE...: install the Debian packages that are missing. Without root or apt, name them and fail.
set -u
missing=
for p in "$@"; do
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing$missing"
	apt-get update -qq >/dev/null &&
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null && exit 0
fi
# On other distributions the packages have other names. It is enough that the programs exist.
for program in nft ip conntrack chromium; do
	PATH="$PATH:/usr/sbin:/sbin" command -v $program >/dev/null || { echo "missing Debian packages:$missing; install them first" >&2; exit 1; }
done
