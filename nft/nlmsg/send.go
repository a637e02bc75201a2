package nlmsg

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Send gives messages to the kernel through a netlink socket, and does not wait. Such a socket never waits for room, so a
// poll after EINTR or EAGAIN could wait for ever. After an error, the kernel may have the messages or not.
func Send(sock syscall.Conn, messages []byte) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return fmt.Errorf("send on a netlink socket: %w", err)
	}
	to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.Sendto(int(fd), messages, unix.MSG_DONTWAIT, to)
	})
	return errors.Join(controlErr, err)
}

// Lost reports whether an error means that a socket is of no use any more: something closed its file descriptor.
func Lost(err error) bool {
	return slices.ContainsFunc([]error{unix.EBADF, unix.ENOTSOCK, os.ErrClosed}, func(e error) bool { return errors.Is(err, e) })
}
