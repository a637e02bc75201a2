#!/bin/bash
# build.sh [NAME...]: build neighbors from their Go modules: cni (plugins and cnitool), flannel, metallb. Skip those that an earlier
# run has built. Print the folder with the programs on standard output, and progress on standard error.
#
# The name of the folder is a hash of this script, which has the versions, and of Go's version. With an empty cache the
# build takes two minutes on two cores. The checksum database of Go vouches for the modules.
set -euo pipefail
cd "$(dirname "$0")"
cache=${VERDICT_NEIGHBORS_CACHE:-$(cd ../.. && pwd)/.cache/neighbors}
plugins=1.9.1 cni=1.3.0 flannel=0.28.10 metallb=0.16.1
out=$cache/$(cat build.sh <(go env GOVERSION GOOS GOARCH) | sha256sum | cut -c1-16)
mkdir -p "$out"
exec 9>"$out/.lock"
flock 9 # a second run waits for the first one and finds its programs
export CGO_ENABLED=0

say() { printf '%s neighbors: %s\n' "$(date -u +%H:%M:%S)" "$*" >&2; }

cni() {
	local p=github.com/containernetworking/plugins/plugins list=()
	for one in main/bridge main/ptp meta/portmap meta/firewall meta/bandwidth ipam/host-local; do
		list+=("$p/$one@v$plugins")
	done
	GOBIN=$out go install -ldflags '-s -w' "${list[@]}"
	GOBIN=$out go install -ldflags '-s -w' "github.com/containernetworking/cni/cnitool@v$cni"
}

# flannel: without two backends that the tests do not use. One needs a C compiler, and the module proxy does not have what
# the other one needs.
flannel() {
	local dir source
	dir=$(mktemp -d)
	# shellcheck disable=SC2064 # the folder of now
	trap "rm -rf '$dir'" EXIT
	source=$(cd "$dir" && go mod download -json "github.com/flannel-io/flannel@v$flannel" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	cp -r "$source/." "$dir"
	chmod -R u+w "$dir"
	sed -i '/backend\/\(udp\|tencentvpc\)"$/d' "$dir/main.go"
	(cd "$dir" && go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$out/flanneld" .)
}

# metallb: the speaker, and the definitions of its objects. The module proxy does not have what version 0.16.2 needs. The
# definitions give AS numbers a maximum that does not fit their format, which this API server refuses.
metallb() {
	local source
	GOBIN=$out go install -ldflags '-s -w' "go.universe.tf/metallb/speaker@v$metallb"
	source=$(cd / && go mod download -json "go.universe.tf/metallb@v$metallb" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	mkdir -p "$out/crds"
	for file in "$source"/config/crd/bases/*.yaml; do
		sed 's/format: int32/format: int64/' "$file" >"$out/crds/${file##*/}"
	done
}

for name in "${@:-cni}"; do
	case $name in
	cni | flannel | metallb) ;;
	*) say "unknown: $name (cni, flannel, metallb)"; exit 2 ;;
	esac
	[ -e "$out/.$name" ] && continue
	say "building $name"
	"$name" >&2
	touch "$out/.$name"
	say "built $name"
done
echo "$out"
