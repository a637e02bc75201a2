#!/bin/bash
# kernels.sh list: print the series of amd64 kernels that Debian's archives have, such as 6.12, oldest first. It leaves out
# those before 5.13, which Verdict does not support, and those whose modules are no longer in the archives.
# kernels.sh expand SERIES...: print these series; "all" stands for the whole list.
# kernels.sh fetch SERIES FOLDER: unpack the newest kernel of a series into FOLDER, without installing it.
# The archives are those of supported releases and of their backports, at the addresses where this machine gets its own
# packages. A release that is no longer there is left out; then its series are, too. apt checks signatures as always.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${VERDICT_IPVS_KERNEL:-$(cd "$here/../.." && pwd)/.cache/ipvs-kernel}/apt
suites="bullseye-security bookworm-security trixie-security trixie-backports"

command -v apt-get >/dev/null || { echo "kernels.sh: this machine has no apt; unpack a Debian amd64 kernel by hand (see README.md)" >&2; exit 1; }
mkdir -p "$cache/state/lists/partial" "$cache/cache/archives/partial"

other_apt() {
	local command=$1
	shift
	"$command" -qq -o Dir::Etc::sourcelist="$cache/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State="$cache/state" \
		-o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$cache/cache" -o APT::Sandbox::User=root \
		-o Acquire::Languages=none "$@"
}

# The addresses of this machine's own archives: that of Debian, and that of the security updates.
sources() {
	local own main security suite
	own=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null | grep -v '^#' | grep -oE 'https?://[^ ]+' || true)
	main=$(grep -E '/debian/?$' <<<"$own" | head -n 1)
	security=$(grep -E '/debian-security/?$' <<<"$own" | head -n 1)
	for suite in $suites; do
		case $suite in
		*-security) echo "deb [arch=amd64] ${security:-$main} $suite main" ;;
		*) echo "deb [arch=amd64] $main $suite main" ;;
		esac
	done
}

# Package lists are good for an hour.
update() {
	[ -n "$(find "$cache/updated" -mmin -60 2>/dev/null)" ] && return
	sources >"$cache/sources.list"
	other_apt apt-get update >"$cache/update.log" 2>&1 || true # a release may be gone
	touch "$cache/updated"
}

# packages lists the images whose parts are there. apt-cache prints the name of a missing package in angle brackets. The
# part linux-base has nothing that a test needs.
packages() {
	local images
	images=$(other_apt apt-cache pkgnames linux-image- | grep -E '^linux-image-[0-9]+\.[0-9]+\.[^ ]*-cloud-amd64$' | sort -V)
	[ -z "$images" ] || other_apt apt-cache depends --no-recommends $images | awk '
		/^linux-image/ { if (complete) print name; name = $1; complete = 1 }
		$1 == "Depends:" && $2 ~ /^<linux-(binary|modules)-[0-9]/ { complete = 0 }
		END { if (complete) print name }'
}

newest() { packages | grep -E "^linux-image-${1//./\\.}\." | tail -n 1; }

fetch() {
	local series=$1 dir=$2 pkg parts ver
	pkg=$(newest "$series")
	[ -n "$pkg" ] || { echo "kernels.sh: Debian's archives have no kernel $series:" >&2; cat "$cache/update.log" >&2; exit 1; }
	# Newer kernels are split into several packages.
	parts=$(other_apt apt-cache depends --no-recommends --no-suggests "$pkg" | awk '$1 == "Depends:" && $2 ~ /^linux-(base|binary|modules)-[0-9]/ { print $2 }')
	echo "fetching $pkg"
	rm -rf "$dir"
	mkdir -p "$dir"
	cd "$dir"
	other_apt apt-get download "$pkg" $parts
	for deb in *.deb; do dpkg -x "$deb" .; done
	rm -f ./*.deb
	[ -e lib/modules ] || { mkdir -p lib; ln -s ../usr/lib/modules lib/modules; }
	ver=$(ls lib/modules)
	[ -e "lib/modules/$ver/kernel" ] || { echo "kernels.sh: the packages $pkg $parts have no modules" >&2; exit 1; }
	# Under emulation, modules load several times faster when they are not compressed and not signed.
	find "lib/modules/$ver/" -name '*.ko.xz' -exec xz -d {} +
	find "lib/modules/$ver/" -name '*.ko' -exec strip -g {} +
	PATH="$PATH:/usr/sbin:/sbin" depmod -b . "$ver"
	ln -sf "$(find . -name "vmlinuz*" | head -n 1)" vmlinuz
	echo "$ver" >version
	initramfs "$ver"
	touch .ok
}

# initramfs is what a kernel needs that does not have the driver of the guest's root folder built in.
initramfs() {
	local tree=initramfs.tree number=100 module
	rm -rf $tree initramfs
	: >initramfs
	grep -q '/virtiofs\.ko:' "lib/modules/$1/modules.dep" || return 0
	mkdir -p $tree/bin $tree/modules $tree/proc $tree/dev $tree/root
	cp "$(command -v busybox)" $tree/bin/
	cp "$here/initramfs-init.sh" $tree/init
	for module in $(PATH="$PATH:/usr/sbin:/sbin" modprobe -d "$PWD" -S "$1" -a --show-depends virtio_pci virtio_console virtiofs | awk '$1 == "insmod" { print $2 }'); do
		cp "$module" "$tree/modules/$((number += 1)).ko"
	done
	(cd $tree && find . | busybox cpio -o -H newc 2>/dev/null) >initramfs
	rm -rf $tree
}

list() {
	update
	packages | sed -E 's/^linux-image-([0-9]+\.[0-9]+)\..*/\1/' | uniq | awk -F . '$1 > 5 || $1 == 5 && $2 >= 13'
}

case ${1:-} in
list) list ;;
expand) if [ "${2:-}" = all ]; then all=$(list); else all=${*:2}; fi; [ -n "$all" ] && echo $all ;;
fetch) update; fetch "$2" "$3" ;;
*) echo "usage: kernels.sh list | expand SERIES... | fetch SERIES FOLDER" >&2; exit 2 ;;
esac
