package nlmsg

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Lost reports whether an error means that a socket is of no use any more: something closed its file descriptor.
func Lost(err error) bool {
	return slices.ContainsFunc([]error{unix.EBADF, unix.ENOTSOCK, os.ErrClosed}, func(e error) bool { return errors.Is(err, e) })
}

// Loss says whether the owner of a socket has lost it, and needs another one. The zero value is for a socket that is there.
type Loss struct {
	lost  bool
	taken []io.Closer // lost sockets whose file descriptors belong to other files
}

// Note notes whether an error means that the socket is lost, and returns the error. It gives up a lost socket at once:
// its file descriptor is free, and belongs to another file soon. If it does already, the socket must not be closed, not
// even by the garbage collector.
func (l *Loss) Note(sock io.Closer, err error) error {
	if l.lost || !Lost(err) {
		return err
	}
	l.lost = true
	if errors.Is(err, unix.ENOTSOCK) {
		l.taken = append(l.taken, sock)
	} else {
		_ = sock.Close() // it is of no use, whatever the kernel says
	}
	return err
}

// Lost reports whether the socket is lost.
func (l *Loss) Lost() bool { return l.lost }

// Replaced notes that there is another socket.
func (l *Loss) Replaced() { l.lost = false }

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
