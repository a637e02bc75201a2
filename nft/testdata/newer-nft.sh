#!/bin/sh
# Unpacks the nft of Debian 13 (trixie) into a folder, beside the installed one, and prints the command that starts it.
# The packages come from wherever this machine gets its own: a second sources list is derived from the present one.
# Usage: newer-nft.sh FOLDER
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
start="$dir/nft"
if [ -x "$start" ]; then
	echo "$start"
	exit 0
fi

. /etc/os-release
mkdir -p "$dir/apt/sources" "$dir/apt/state/lists/partial" "$dir/apt/cache/archives/partial" "$dir/apt/packages" "$dir/root"
cp /etc/apt/sources.list.d/debian.sources "$dir/apt/sources/" 2>/dev/null ||
	cp /etc/apt/sources.list "$dir/apt/sources/debian.list"
sed -i "s/$VERSION_CODENAME/trixie/g" "$dir"/apt/sources/*
newer_apt() {
	apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$dir/apt/sources" \
		-o Dir::State="$dir/apt/state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$dir/apt/cache" \
		-o APT::Sandbox::User=root "$@"
}
newer_apt update
cd "$dir/apt/packages"
newer_apt download nftables libnftables1 libnftnl11 libmnl0 libc6 libxtables12 libjansson4 libgmp10 \
	libedit2 libtinfo6 libbsd0 libmd0
for package in *.deb; do
	dpkg -x "$package" "$dir/root"
done

loader=$(find "$dir/root" -name 'ld-linux*.so.*' | head -n 1)
libraries=$(find "$dir/root" -name '*.so.*' -exec dirname {} + | sort -u | paste -sd:)
cat >"$start.new" <<END
#!/bin/sh
exec "$loader" --library-path "$libraries" "$dir/root/usr/sbin/nft" "\$@"
END
chmod 755 "$start.new"
rm -rf "$dir/apt"
mv "$start.new" "$start"
echo "$start"
