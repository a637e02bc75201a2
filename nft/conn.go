package nft

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// Outcome is what became of a transaction.
type Outcome uint8

// The three outcomes.
const (
	Applied  Outcome = iota // the kernel has it
	Rejected                // the kernel has refused all of it
	Unknown                 // it cannot be told; read back before the next change
)

func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Rejected:
		return "rejected"
	}
	return "unknown"
}

// conn is a netlink socket to nf_tables. It is used by one goroutine.
type conn struct {
	sock        *socket.Conn
	writeBuffer int
	answers     []byte
	request     wire // for questions outside batches
	unread      bool // there may be answers to an earlier request that nobody has read
}

// smallBuffer is the size of both socket buffers to begin with. A batch goes to the kernel as one message and has to
// fit in the send buffer; the receive buffer has to take an answer for each message of a refused batch.
const smallBuffer = 1 << 20

// dial opens the socket in the network namespace given by a file descriptor, or in the present one when it is 0.
func dial(netns int) (*conn, error) {
	sock, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, "nf_tables", &socket.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket to nf_tables: %w", err)
	}
	c := &conn{sock: sock, answers: make([]byte, 1<<16)}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, sock.Close())
	}
	return c, nil
}

func (c *conn) prepare() error {
	if err := c.sock.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind netlink socket to nf_tables: %w", err)
	}
	// Errors name the attribute at fault, and do not repeat the message they answer (up to 64 KiB).
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		if err := c.sock.SetsockoptInt(unix.SOL_NETLINK, option, 1); err != nil {
			return fmt.Errorf("set netlink option %d: %w", option, err)
		}
	}
	if err := c.sock.SetReadBuffer(4 * smallBuffer); err != nil {
		return fmt.Errorf("size netlink receive buffer: %w", err)
	}
	return c.growWriteBuffer(smallBuffer)
}

// growWriteBuffer makes room for a batch (SO_SNDBUFFORCE, or SO_SNDBUF without CAP_NET_ADMIN in the initial user
// namespace, which the kernel then cuts to net.core.wmem_max).
func (c *conn) growWriteBuffer(size int) error {
	if size <= c.writeBuffer {
		return nil
	}
	if err := c.sock.SetWriteBuffer(size); err != nil {
		return fmt.Errorf("size netlink send buffer for %d bytes: %w", size, err)
	}
	c.writeBuffer = size
	return nil
}

// capacity is the size of the largest batch that the socket takes as it is. Asking cannot fail on an open socket.
func (c *conn) capacity() int {
	size, _ := c.sock.WriteBuffer()
	return size - 32 // netlink_sendmsg
}

func (c *conn) close() error { return c.sock.Close() }

// send hands a batch to the kernel. The kernel works it off inside the system call, so all answers are there when it
// returns; none means that they were lost and nothing is known.
func (c *conn) send(b *batch) (Outcome, *nlmsg.Ack, error) {
	if err := c.growWriteBuffer(len(b.Buf) + len(b.Buf)/8); err != nil {
		return Rejected, nil, err
	}
	if err := c.sendRaw(b.Buf); err != nil {
		return sendFailure(err), nil, err
	}
	outcome, why, err := c.collect(b.first, b.last)
	c.unread = outcome != Applied
	return outcome, why, err
}

// sendRaw sends a request; whoever reads all of its answers says so in unread.
func (c *conn) sendRaw(messages []byte) error {
	c.drain()
	c.unread = true
	to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := c.sock.Sendto(context.Background(), messages, 0, to); err != nil {
		return fmt.Errorf("send %d bytes to nf_tables: %w", len(messages), err)
	}
	return nil
}

// wait receives the next datagram.
func (c *conn) wait() (int, error) {
	n, _, err := c.sock.Recvfrom(context.Background(), c.answers, 0)
	return n, err
}

// sendFailure tells errors that come before the kernel has looked at the batch from those that may come after.
func sendFailure(err error) Outcome {
	for _, before := range []error{unix.EMSGSIZE, unix.ENOMEM, unix.EPERM, unix.EBADF, unix.EACCES} {
		if errors.Is(err, before) {
			return Rejected
		}
	}
	return Unknown
}

// drain throws away answers to an earlier request.
func (c *conn) drain() {
	for c.unread {
		_, err := c.receive()
		c.unread = err == nil || errors.Is(err, unix.ENOBUFS)
	}
}

// collect reads answers until the one for the last message. Errors come before it, in the order of the messages;
// an error of the opening message says that the commit as a whole failed. When there are more errors than the receive
// buffer takes, the kernel says so first (ENOBUFS); those that were not lost can still be read.
func (c *conn) collect(first, last uint32) (Outcome, *nlmsg.Ack, error) {
	var cause *nlmsg.Ack
	for lost := false; ; {
		n, err := c.receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			lost = true
			continue
		case err != nil && cause != nil:
			return Rejected, cause, cause.Err()
		case err != nil && lost:
			return Unknown, nil, fmt.Errorf("read the answer of nf_tables: %w", unix.ENOBUFS)
		case err != nil:
			return Unknown, nil, fmt.Errorf("read the answer of nf_tables: %w", err)
		}
		var done bool
		cause, done, err = firstError(c.answers[:n], first, last, cause)
		switch {
		case err != nil:
			return Unknown, nil, fmt.Errorf("read the answer of nf_tables: %w", err)
		case done && !lost:
			return Applied, nil, nil
		}
	}
}

// firstError finds the first error of a batch among the answers in a datagram, unless an earlier datagram had one. It
// reports whether the batch's last message was answered, and no message with an error.
func firstError(datagram []byte, first, last uint32, cause *nlmsg.Ack) (*nlmsg.Ack, bool, error) {
	m := nlmsg.NewMessages(datagram)
	for m.Next() {
		answer, ok := m.Ack()
		if ok && answer.Errno != 0 && cause == nil && answer.Seq >= first && answer.Seq <= last {
			cause = &answer
		}
		if ok && answer.Seq == last && cause == nil {
			return nil, true, nil
		}
	}
	return cause, false, m.Err()
}

// receive does not wait: an answer that is not there yet will not come.
func (c *conn) receive() (n int, err error) {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return 0, err
	}
	readErr := raw.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), c.answers, unix.MSG_DONTWAIT)
	})
	return n, errors.Join(readErr, err)
}
