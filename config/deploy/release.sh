#!/bin/bash
# release.sh [PART...]: write a release into bin/release: binaries with their bills of materials, the plugin of kubectl, packages,
# the chart, the image, and SHA256SUMS; all of them, or only the parts binaries, plugin, packages, chart and image that are named. VERSION must be
# that of a release, such as v1.2.3. If RELEASE_KEY names a private key of OpenSSH, SHA256SUMS.sig is its signature.
# The same commit and version give the same files. OUT, ARCHITECTURES and SYSTEMS name another folder and
# fewer architectures and systems (of the plugin).
set -euo pipefail
cd "$(dirname "$0")/../.."
[[ ${VERSION:-} =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-rc\.[0-9]+)?$ ]] ||
	{ echo "release.sh: VERSION is '${VERSION:-}', and not such as v1.2.3 or v1.2.3-rc.1: nothing is written. Check out a tag, or name one" >&2; exit 1; }
[ -z "${RELEASE_KEY:-}" ] || [ -r "$RELEASE_KEY" ] || { echo "release.sh: cannot read RELEASE_KEY=$RELEASE_KEY: nothing is written" >&2; exit 1; }
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
architectures=${ARCHITECTURES:-amd64 arm64}
out=$(realpath -m "${OUT:-bin/release}")
export SOURCE_DATE_EPOCH VERSION
rm -rf "$out" && mkdir -p "$out"

# The plugin of kubectl, with a manifest for krew.
plugin() {
	local os arch file
	cat >"$out/verdict.krew.yaml" <<-EOF
		apiVersion: krew.googlecontainertools.github.com/v1alpha2
		kind: Plugin
		metadata: {name: verdict}
		spec:
		  version: $VERSION
		  homepage: https://github.com/verdict-proxy/verdict
		  shortDescription: Ask the Service proxy Verdict of each node
		  platforms:
	EOF
	for os in ${SYSTEMS:-linux darwin windows}; do
		for arch in $architectures; do
			file=kubectl-verdict-$os-$arch
			CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$out/$file" ./cmd/kubectl-verdict
			(cd "$out" && mv "$file" kubectl-verdict &&
				tar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=0755 --format=ustar -c kubectl-verdict | gzip -9n >"$file.tar.gz" && rm kubectl-verdict)
			cat >>"$out/verdict.krew.yaml" <<-EOF
				  - selector: {matchLabels: {os: $os, arch: $arch}}
				    uri: https://github.com/verdict-proxy/verdict/releases/download/$VERSION/$file.tar.gz
				    sha256: $(sha256sum "$out/$file.tar.gz" | cut -d' ' -f1)
				    bin: kubectl-verdict
			EOF
		done
	done
}

binaries() {
	for arch in $architectures; do
		make -s build sbom GOARCH="$arch" BINARY="$out/verdict-linux-$arch" >&2
	done
	cp config/deploy/loadbalancer.schema.json "$out"
}

packages() { OUT=$out ARCHITECTURES=$architectures config/deploy/packages.sh; }

# The chart installs the version that it belongs to.
chart() {
	local stage
	stage=$(mktemp -d "${TMPDIR:-/tmp}"/verdict-chart.XXXXXX)
	cp -rL config/deploy/chart "$stage/verdict"
	cp LICENSE "$stage/verdict"
	sed -i -E "s,^version: .*,version: ${VERSION#v},; s,^appVersion: .*,appVersion: $VERSION," "$stage/verdict/Chart.yaml"
	chmod -R u=rwX,go=rX "$stage/verdict"
	tar -C "$stage" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar -c verdict |
		gzip -9n >"$out/verdict-chart-${VERSION#v}.tgz"
	rm -r "$stage"
}

image() {
	config/deploy/image.sh "${IMAGE:-verdict:$VERSION}"
	mv bin/verdict-image.tar "$out/verdict-image-${VERSION#v}.tar"
}

for part in "${@:-binaries plugin packages chart image}"; do
	for p in $part; do $p; done
done
(cd "$out" && sha256sum -- * >.sums && mv .sums SHA256SUMS)
[ -z "${RELEASE_KEY:-}" ] || ssh-keygen -q -Y sign -f "$RELEASE_KEY" -n verdict-release "$out/SHA256SUMS"
ls "$out"
