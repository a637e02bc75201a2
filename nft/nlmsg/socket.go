package nlmsg

import (
	"errors"
	"fmt"
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
