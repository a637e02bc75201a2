#!/bin/bash
# build.sh [NAME...]: build etcd, kube-apiserver and kube-proxy, or the named ones, from their Go modules. Skip those that an
# earlier run has built. Print the folder with the binaries on standard output, and progress on standard error. Other names
# are coredns, kube-controller-manager, kube-scheduler, kubectl, kubelet and pause.
#
# The name of the folder is a hash of everything that the binaries depend on. With an empty cache the build takes about
# 20 minutes on two cores. VERDICT_E2E_CACHE is the parent folder; by default it is .cache/controlplane of the repository.
#
# KUBERNETES=1.34.4 builds the parts of that version from its own go.mod and go.sum; etcd stays the same.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
cache=${VERDICT_E2E_CACHE:-$root/.cache/controlplane}
ours=1.37.1 # as in go.mod
kubernetes=${KUBERNETES:-$ours}
key=$(echo "$kubernetes" | cat - go.mod go.sum {etcd,coredns}/{go.mod,go.sum} {coredns,pause}/main.go build.sh <(go env GOVERSION GOOS GOARCH) | sha256sum | cut -c1-16)
out=$cache/$key
mkdir -p "$out"
exec 9>"$out/.lock"
flock 9 # a second run waits for the first one and finds its binaries

# other makes a module that depends on another version, in the folder of its binaries. In the repository of Kubernetes, the
# modules k8s.io/* are folders.
other() {
	local source
	source=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	sed -E "s,^module .*,module other,; s,\./staging/src/(k8s\.io/[a-z0-9-]+),\1 v0.${kubernetes#*.}," "$source/go.mod" >"$out/go.mod"
	install -m 644 "$source/go.sum" "$out/go.sum"
	go mod edit -require "k8s.io/kubernetes@v$kubernetes" "$out/go.mod"
}

say() { printf '%s controlplane: %s\n' "$(date -u +%H:%M:%S)" "$*" >&2; }

# progress replaces the names of compiled packages with a line for every hundred of them, and passes on everything else.
progress() {
	awk -v what="$1" '
		/^[a-z0-9.-]+(\/[A-Za-z0-9._~-]+)*$/ { if (++n % 100 == 0) { printf "    %s: %d packages compiled\n", what, n; fflush() } next }
		/^go: downloading/ { if (++d % 50 == 0) { printf "    %s: %d modules downloaded\n", what, d; fflush() } next }
		{ print; fflush() }' >&2
}

build() { # NAME FOLDER PACKAGE
	[ -x "$out/$1" ] && return
	say "building $1"
	local version="-X k8s.io/component-base/version.gitVersion=v$kubernetes"
	version="$version -X k8s.io/component-base/version.gitMajor=${kubernetes%%.*} -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<$kubernetes)"
	local mod=readonly
	if [ "$2" = "$out" ]; then other && mod=mod; fi
	(cd "$2" && CGO_ENABLED=0 go build -v -mod=$mod -ldflags "-s -w $version" -o "$out/$1.part" "$3" 2>&1) | progress "$1"
	mv "$out/$1.part" "$out/$1"
	say "built $1 ($(du -m "$out/$1" | cut -f1) MB)"
}

module=.
if [ "$kubernetes" != $ours ]; then module=$out; fi
for name in "${@:-etcd kube-apiserver kube-proxy}"; do
	for one in $name; do
		case $one in
		etcd) build etcd etcd go.etcd.io/etcd/server/v3 ;;
		coredns) build coredns coredns . ;;
		pause) build pause . ./pause ;;
		*) build "$one" "$module" "k8s.io/kubernetes/cmd/$one" ;; # a tool of go.mod
		esac
	done
done
echo "$out"
