#!/bin/sh
# packages.sh PACKAGE...: install the Debian packages that are missing; without root or apt, name them and fail.
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
# Another distribution may have the programs under other package names.
for program in nft ip conntrack; do
	PATH="$PATH:/usr/sbin:/sbin" command -v $program >/dev/null || { echo "missing:$missing (Debian names); install them first" >&2; exit 1; }
done
