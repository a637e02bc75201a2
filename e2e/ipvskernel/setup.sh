#!/bin/bash
# setup.sh: prepare everything that run.sh needs. It installs missing Debian packages, or names them when it does not run as
# root. It downloads a Debian kernel with IPVS and unpacks it into the cache folder. It does not install the kernel package,
# so there is no initramfs and no change of the boot loader. It prints nothing when there is nothing to do.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${VERDICT_IPVS_KERNEL:-$(cd "$here/../.." && pwd)/.cache/ipvs-kernel}
dir=$cache/kernel

virtiofsd() { for f in /usr/lib/qemu/virtiofsd /usr/libexec/virtiofsd; do [ -x $f ] && return; done; return 1; }

# need PACKAGE PROGRAM. virtiofsd has its own package since Debian 13.
missing=
need() { PATH="$PATH:/usr/sbin:/sbin" command -v "$2" >/dev/null || missing="$missing $1"; }
need qemu-system-x86 qemu-system-x86_64
need kmod depmod
need xz-utils xz
need binutils strip
need iproute2 ip
need nftables nft
need ipvsadm ipvsadm
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

[ -e "$dir/.ok" ] && exit 0
command -v apt-get >/dev/null || { echo "this machine has no apt: unpack a Debian amd64 kernel package into $dir (see README.md)" >&2; exit 1; }
# Kernel 6.12 has a versioned package name in Debian 12 (security updates), and is the default kernel of Debian 13.
candidates=${KERNEL_META:-linux-image-6.12-cloud-amd64 linux-image-cloud-amd64}
find_package() {
	for meta in $candidates; do
		pkg=$(apt-cache depends --no-recommends --no-suggests "$meta" 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }')
		[ -n "$pkg" ] && return
	done
	return 1
}
if ! find_package; then
	[ "$(id -u)" = 0 ] && apt-get update -qq >/dev/null
	find_package || { echo "apt knows none of these packages: $candidates" >&2; exit 1; }
fi
echo "fetching $pkg"
rm -rf "$dir"
mkdir -p "$dir"
(cd "$dir" && apt-get download -qq -o APT::Sandbox::User=root "$pkg" && dpkg -x "$pkg"_*.deb . && rm -f "$pkg"_*.deb)
ver=$(ls "$dir/lib/modules")
# Under emulation, modules load several times faster when they are not compressed and not signed.
(cd "$dir/lib/modules/$ver" && find . -name '*.ko.xz' -exec xz -d {} + && find . -name '*.ko' -exec strip -g {} +)
PATH="$PATH:/usr/sbin:/sbin" depmod -b "$dir" "$ver"
ln -sf "boot/vmlinuz-$ver" "$dir/vmlinuz"
touch "$dir/.ok"
