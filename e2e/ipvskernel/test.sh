#!/bin/bash
# test.sh [-race] PACKAGE... [-- FLAGS]: build verdict and the tests of each package. Boot a kernel and run the tests of one
# package after the other; then the next kernel. Every test binary gets FLAGS (-test.run NAME, -test.bench NAME). Tests find
# the verdict binary with $VERDICT_BINARY. The output is that of "go test -v". Run setup.sh first.
# Environment: KERNELS (series, separated by blanks; by default 6.12), TAGS (build tags; ipvs by default), TAGGED (1: of each
# package only the tests in files that need the tag ipvs, or it or e2e, and with -short; "make test" runs the others under the
# machine's kernel).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${VERDICT_IPVS_KERNEL:-$root/.cache/ipvs-kernel}
mkdir -p "$cache"
bin=$(mktemp -d "$cache/bin.XXXXXX")
trap 'rm -rf "$bin"' EXIT
kernels=${KERNELS:-6.12}
export CGO_ENABLED=0
race=
[ "${1:-}" = -race ] && { race=-race; CGO_ENABLED=1; shift; }
CGO_ENABLED=0 "${GO:-go}" build -C "$root" -o "$bin/verdict" ./cmd/verdict
export VERDICT_BINARY=$bin/verdict PASS_ENV="${PASS_ENV:-} VERDICT_BINARY"
script=$bin/tests.sh
echo 'failed=0' >"$script"
packages=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do packages+=("$1"); shift; done
[ $# -gt 0 ] && shift
[ ${#packages[@]} -gt 0 ] || { echo "usage: test.sh [-race] PACKAGE... [-- FLAGS]" >&2; exit 2; }
cd "$root"
# tagged FOLDER: a pattern of the tests that TAGGED chooses.
tagged() {
	grep -lE '^//go:build (e2e \|\| )?ipvs$' "$1"/*_test.go | xargs grep -hoE '^func (Test|Example)[A-Za-z0-9_]*' |
		sed 's/^func //' | grep -vx TestMain | paste -sd '|' | sed 's/.*/^(&)$/'
}
number=0
"${GO:-go}" list -f '{{.ImportPath}} {{.Dir}}' "${packages[@]}" >"$bin/packages"
while read -r package dir; do
	number=$((number + 1))
	"${GO:-go}" test $race -tags "${TAGS-ipvs}" -c -o "$bin/$number.test" "$package"
	[ -e "$bin/$number.test" ] || continue # no test files
	{
		printf 'cd %q || exit 1\n' "$dir"
		printf 'if %q -test.v' "$bin/$number.test"
		[ -n "${TAGGED:-}" ] && printf ' -test.short -test.run %q' "$(tagged "$dir")"
		[ $# -gt 0 ] && printf ' %q' "$@"
		printf '; then echo "ok  	%s"; else echo "FAIL	%s"; failed=1; fi\n' "$package" "$package"
	} >>"$script"
done <"$bin/packages"
echo 'exit $failed' >>"$script"

code=0
for KERNEL in $kernels; do
	export KERNEL
	[ "$kernels" = "$KERNEL" ] || echo "kernel $KERNEL: $(cat "$cache/kernel-$KERNEL/version")"
	"$here/run.sh" sh "$script" || code=$?
done
exit "$code"
