#!/bin/bash
# run.sh COMMAND ARGS...: run COMMAND as root under a kernel that setup.sh fetched, in QEMU without KVM. The guest has the
# root folder of this machine, read-only over virtiofs, so that paths are the same. Its /run is its own, with TMPDIR in it.
# run.sh shows the command's output and exits with its exit code. It exits with 124 after a timeout, and with 125 when the
# guest died; then it shows the guest's console.
# Environment: KERNEL (series, 6.12 by default), TIMEOUT (seconds), MEM (MiB), PASS_ENV (names of variables that the command gets), VERBOSE,
# ICOUNT (1: a nanosecond of the guest is one instruction).
set -u
here=$(cd "$(dirname "$0")" && pwd)
kernel=${VERDICT_IPVS_KERNEL:-$(cd "$here/../.." && pwd)/.cache/ipvs-kernel}/kernel-${KERNEL:-6.12}
icount=; [ -n "${ICOUNT:-}" ] && icount="-icount shift=0"
timeout=${TIMEOUT:-600} mem=${MEM:-1536}
[ "$(id -u)" = 0 ] || { echo "run.sh: run it as root, to share this machine's root folder with the guest" >&2; exit 1; }
[ -e "$kernel/.ok" ] || { echo "run.sh: there is no kernel in $kernel; run setup.sh first" >&2; exit 1; }
for virtiofsd in /usr/lib/qemu/virtiofsd /usr/libexec/virtiofsd; do [ -x $virtiofsd ] && break; done

# The list has no schedulers: the kernel loads a scheduler when a virtual server names it, as it does on a node.
modules="ip_vs nf_tables nft_chain_nat nft_nat nft_masq nft_redir nft_ct nft_numgen nft_hash nft_fib_inet nft_reject_inet nft_limit nft_log nf_conntrack_netlink dummy veth sctp"

w=$(mktemp -d "${TMPDIR:-/tmp}"/run-in-kernel.XXXXXX)
printf 'kernel=%q\nmodules=%q\n' "$kernel" "$modules" >"$w/env"
{
	printf 'cd %q\n' "$PWD"
	for v in PATH GOTRACEBACK GODEBUG ${PASS_ENV:-}; do [ -n "${!v-}" ] && printf 'export %s=%q\n' "$v" "${!v}"; done
	printf 'exec'; printf ' %q' "$@"; echo
} >"$w/cmd"
qemu= share= cat=
cleanup() {
	for p in $qemu $share $cat; do kill "$p" 2>/dev/null; done
	wait 2>/dev/null
	rm -rf "$w"
}
trap cleanup EXIT; trap 'exit 130' INT; trap 'exit 143' TERM
mkfifo "$w/out"
initrd=
[ -s "$kernel/initramfs" ] && initrd="-initrd $kernel/initramfs"
$virtiofsd --socket-path="$w/fs" -o source=/ -o sandbox=chroot -o cache=always --thread-pool-size=4 >"$w/fs.log" 2>&1 & share=$!
for _ in $(seq 250); do [ -S "$w/fs" ] && break; sleep 0.02; done
[ -S "$w/fs" ] || { echo "run.sh: virtiofsd did not start" >&2; cat "$w/fs.log" >&2; exit 125; }
cat "$w/out" & cat=$!
# One CPU in a single thread: with several, emulated in parallel, the guest sometimes crashes and is not faster.
timeout -k 5 "$timeout" qemu-system-x86_64 -M pc -accel tcg,thread=single,tb-size=512 -cpu qemu64 -smp 1 -m "$mem" $icount \
	-object memory-backend-memfd,id=mem,size="${mem}M",share=on -numa node,memdev=mem \
	-nodefaults -no-user-config -display none -no-reboot -serial file:"$w/console" \
	-chardev socket,id=fs,path="$w/fs" -device vhost-user-fs-pci,chardev=fs,tag=hostroot \
	-device virtio-serial-pci -chardev file,id=out,path="$w/out",append=on -device virtserialport,chardev=out,name=out \
	-chardev file,id=rc,path="$w/rc" -device virtserialport,chardev=rc,name=rc \
	-kernel "$kernel/vmlinuz" $initrd \
	-append "console=ttyS0 quiet panic=-1 rootfstype=virtiofs root=hostroot ro init=$here/guest-init.sh job=$w mitigations=off nokaslr rcupdate.rcu_expedited=1 cryptomgr.notests audit=0 no_timer_check" \
	</dev/null 2>"$w/qemu.err" & qemu=$!
wait "$qemu"; code=$?; qemu=
wait "$cat"; cat=
console() { tr -d '\r' <"$w/console"; }
[ -n "${VERBOSE:-}" ] && { cat "$w/qemu.err" "$w/fs.log"; console; } >&2
[ "$code" = 124 ] && { echo "run.sh: timed out after ${timeout}s" >&2; console | tail -20 >&2; exit 124; }
rc=$(cat "$w/rc" 2>/dev/null)
[ -n "$rc" ] || { echo "run.sh: the guest ended without an exit code" >&2; cat "$w/qemu.err" >&2; console | tail -200 >&2; exit 125; }
exit "$rc"
