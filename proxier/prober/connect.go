package prober

import (
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// connect opens a TCP connection. It does what a net.Dialer does with a third less work: a node makes up to thousands of
// connections a second for its checks.
func connect(to netip.AddrPort, deadline time.Time) (*os.File, error) {
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = unix.Connect(fd, addr)
	f := os.NewFile(uintptr(fd), "") // after Connect: a socket that was never connected is writable, too
	if deadlineErr := f.SetDeadline(deadline); err == nil {
		err = deadlineErr
	}
	if errors.Is(err, unix.EINPROGRESS) {
		err = connected(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// connected waits until a connection exists.
func connected(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	result := 0
	waitErr := raw.Write(func(fd uintptr) bool {
		// The runtime forgets that the socket became writable before this wait, so poll comes first.
		n, pollErr := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0) // does not wait: no EINTR
		if n == 0 && pollErr == nil {
			return false
		}
		result, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		return true
	})
	switch {
	case waitErr != nil:
		return waitErr
	case err != nil:
		return os.NewSyscallError("getsockopt", err)
	case result != 0:
		return unix.Errno(result)
	}
	return nil
}

// reset has the connection end with a reset when it is closed. That leaves no TIME_WAIT behind: 1,000 checks a second
// would make 60,000 of them.
func reset(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	if err == nil {
		err = setErr
	}
	return err
}
