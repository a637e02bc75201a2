#!/bin/bash
# setup.sh: prepare everything that run.sh needs. It installs missing Debian packages, or names them when it does not run as
# root. It downloads a Debian kernel and unpacks it into the cache folder. It does not install the kernel package, so the
# boot loader does not change. It prints nothing when there is nothing to do.
# Environment: KERNELS (series, separated by blanks; by default 6.12).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${VERDICT_IPVS_KERNEL:-$(cd "$here/../.." && pwd)/.cache/ipvs-kernel}

virtiofsd() { for f in /usr/lib/qemu/virtiofsd /usr/libexec/virtiofsd; do [ -x $f ] && return; done; return 1; }

# need PACKAGE PROGRAM. virtiofsd has its own package since Debian 13.
missing=
need() { PATH="$PATH:/usr/sbin:/sbin" command -v "$2" >/dev/null || missing="$missing $1"; }
need qemu-system-x86 qemu-system-x86_64
need kmod depmod
need xz-utils xz
need busybox-static busybox
need binutils strip
need iproute2 ip
need nftables nft
need ipvsadm ipvsadm
need ipset ipset
need iptables xtables-nft-multi
need conntrack conntrack
if [ -n "$missing" ]; then
	command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || { echo "missing Debian packages:$missing; install them first" >&2; exit 1; }
	echo "installing$missing"
	apt-get update -qq >/dev/null
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
if ! virtiofsd; then
	[ "$(id -u)" = 0 ] || { echo "missing Debian package: virtiofsd; install it first" >&2; exit 1; }
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends virtiofsd >/dev/null
fi

for series in ${KERNELS:-6.12}; do
	[ -e "$cache/kernel-$series/.ok" ] || "$here/kernels.sh" fetch "$series" "$cache/kernel-$series"
done
