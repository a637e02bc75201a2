package netns

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Lose replaces a socket by a file that is no socket, as other code of the process could by a mistake.
func Lose(t testing.TB, fd int) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC); err != nil {
		t.Fatalf("replace file descriptor %d: %v", fd, err)
	}
}

// LoseNetlink does so with all netlink sockets of this process that have a protocol.
func LoseNetlink(t testing.TB, protocol int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, f := range open {
		fd, _ := strconv.Atoi(f.Name())
		domain, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN) // 0 of a file that is no socket
		p, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if domain == unix.AF_NETLINK && p == protocol {
			Lose(t, fd)
			lost++
		}
	}
	if lost == 0 {
		t.Fatalf("the process has no netlink socket with protocol %d", protocol)
	}
}
