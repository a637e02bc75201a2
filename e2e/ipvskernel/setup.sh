#!/bin/bash
# setup.sh: prepare what run.sh needs: Debian packages (installed when root and missing, else named) and a Debian kernel
# with IPVS, unpacked into the cache folder. Nothing is installed from the kernel package: no initramfs, no boot loader.
# Prints nothing when all is there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${VERDICT_IPVS_KERNEL:-$(cd "$here/../.." && pwd)/.cache/ipvs-kernel}
dir=$cache/kernel

virtiofsd() { for f in /usr/lib/qemu/virtiofsd /usr/libexec/virtiofsd; do [ -x $f ] && return; done; return 1; }

# Package and a program of it. virtiofsd is a package of its own since Debian 13.
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
	command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || { echo "missing:$missing (Debian names); install them first" >&2; exit 1; }
	echo "installing$missing"
	apt-get update -qq >/dev/null
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
if ! virtiofsd; then
	[ "$(id -u)" = 0 ] || { echo "missing: virtiofsd; install it first" >&2; exit 1; }
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends virtiofsd >/dev/null
fi

[ -e "$dir/.ok" ] && exit 0
command -v apt-get >/dev/null || { echo "no apt: unpack a Debian amd64 kernel package into $dir (see README.md)" >&2; exit 1; }
# Debian 12 has 6.12 under a versioned name (from its security updates), Debian 13 as the default kernel.
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
	find_package || { echo "apt knows none of: $candidates" >&2; exit 1; }
fi
echo "fetching $pkg"
rm -rf "$dir"
mkdir -p "$dir"
(cd "$dir" && apt-get download -qq -o APT::Sandbox::User=root "$pkg" && dpkg -x "$pkg"_*.deb . && rm -f "$pkg"_*.deb)
ver=$(ls "$dir/lib/modules")
# Uncompressed and unsigned modules are several times cheaper to load under emulation.
(cd "$dir/lib/modules/$ver" && find . -name '*.ko.xz' -exec xz -d {} + && find . -name '*.ko' -exec strip -g {} +)
PATH="$PATH:/usr/sbin:/sbin" depmod -b "$dir" "$ver"
ln -sf "boot/vmlinuz-$ver" "$dir/vmlinuz"
touch "$dir/.ok"
