#!/bin/bash
# image.sh NAME: build the image NAME for amd64 and arm64 with buildah, podman or docker, whichever is there, and write it
# to bin/verdict-image.tar (an OCI archive with both). The same commit and version give the same digests with buildah and
# podman. docker, as called here, has not been run. IMAGE_BUILDER names one of the three.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=$1
archive=bin/verdict-image.tar
builder=${IMAGE_BUILDER:-}
if [ -z "$builder" ]; then
	for b in buildah podman docker; do
		if command -v $b >/dev/null && { [ $b != docker ] || docker info >/dev/null 2>&1; }; then builder=$b; break; fi
	done
fi
[ -n "$builder" ] || { echo "image.sh: there is no buildah, no podman and no docker with a daemon; install one of them" >&2; exit 1; }
# Files in the image have the time of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

context=$(mktemp -d "${TMPDIR:-/tmp}"/verdict-image.XXXXXX)
trap 'rm -rf "$context"' EXIT
for arch in amd64 arm64; do
	make -s build GOARCH=$arch BINARY="$context/image/$arch/verdict"
	chmod 0755 "$context/image/$arch/verdict"
done
find "$context" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
mkdir -p bin
rm -f $archive

case $builder in
buildah | podman)
	$builder manifest rm "$name" >/dev/null 2>&1 || $builder rmi "$name" >/dev/null 2>&1 || true
	$builder manifest create "$name" >/dev/null
	for arch in amd64 arm64; do
		# With layers kept, podman writes another history, and so another digest.
		$builder build --quiet --layers=false --timestamp "$SOURCE_DATE_EPOCH" --arch $arch --build-arg TARGETARCH=$arch \
			--manifest "$name" -f config/deploy/Containerfile "$context" >/dev/null
	done
	$builder manifest push --quiet --all "$name" "oci-archive:$archive:$name" ;;
docker)
	docker buildx build --quiet --platform linux/amd64,linux/arm64 --provenance=false --tag "$name" \
		--output "type=oci,dest=$archive,rewrite-timestamp=true" -f config/deploy/Containerfile "$context" ;;
*) echo "image.sh: unknown builder $builder (buildah, podman or docker)" >&2; exit 2 ;;
esac
echo "$archive: $name for amd64 and arm64, built with $builder"
