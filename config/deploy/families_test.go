package deploy

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// familiesVariable makes the test binary allow only some address families, as RestrictAddressFamilies of systemd does,
// and become the program in its arguments.
const familiesVariable = "VERDICT_TEST_ADDRESS_FAMILIES"

// withFamilies becomes another program if the variable is set.
func withFamilies() {
	list := os.Getenv(familiesVariable)
	if list == "" {
		return
	}
	runtime.LockOSThread() // the filter is of this thread, and exec keeps it
	err := restrict(strings.Fields(list))
	if err == nil {
		err = syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "restrict address families:", err)
	os.Exit(1)
}

// restrict makes socket() fail with EAFNOSUPPORT for all families but the named ones.
func restrict(names []string) error {
	numbers := map[string]uint32{
		"AF_UNIX": unix.AF_UNIX, "AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6, "AF_NETLINK": unix.AF_NETLINK,
		"AF_PACKET": unix.AF_PACKET,
	}
	const nr, firstArgument = 0, 16 // in struct seccomp_data
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	end := func(with uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: with} }
	const jumpEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	filter := []unix.SockFilter{load(nr), {Code: jumpEqual, Jt: 1, K: unix.SYS_SOCKET}, end(unix.SECCOMP_RET_ALLOW), load(firstArgument)}
	for _, name := range names {
		number, ok := numbers[name]
		if !ok {
			return fmt.Errorf("unknown address family %s", name)
		}
		filter = append(filter, unix.SockFilter{Code: jumpEqual, Jf: 1, K: number}, end(unix.SECCOMP_RET_ALLOW))
	}
	filter = append(filter, end(unix.SECCOMP_RET_ERRNO|uint32(unix.EAFNOSUPPORT)))
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
