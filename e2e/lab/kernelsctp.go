package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// listenKernelSCTP listens at one address, in the namespace of the calling thread. An association then uses no other
// address of the server. Package net has no SCTP, but it serves a listening socket of SCTP as one of TCP: both are
// streams with the same system calls.
func listenKernelSCTP(at netip.AddrPort) (net.Listener, error) {
	family := IPv4
	if at.Addr().Is6() {
		family = IPv6
	}
	fd, err := unix.Socket(domain(family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, fmt.Errorf("open an SCTP socket (the kernel needs module sctp): %w", err)
	}
	f := os.NewFile(uintptr(fd), "sctp")
	defer f.Close() // the listener has a copy
	err = errors.Join(
		os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at))),
		os.NewSyscallError("listen", unix.Listen(fd, 64)),
	)
	if err != nil {
		return nil, err
	}
	return net.FileListener(f)
}
