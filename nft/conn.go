package nft

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// Outcome is what happened to a transaction.
type Outcome uint8

// The three outcomes.
const (
	Applied  Outcome = iota // the kernel has all of it
	Rejected                // the kernel has nothing of it
	Unknown                 // the answer was lost, and the engine could not find out
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
	netns       int        // as in Options
	port        uint32     // the address of the socket, and of the one that replaces it
	loss        nlmsg.Loss // after it, the next request opens another socket
	writeBuffer int
	answers     []byte
	wire        wire // for requests outside batches
	unread      bool // the socket may hold answers to an earlier request
	patience    time.Duration
	deadline    time.Time // when reading ends; zero: when patience does
}

// answerTimeout ends the wait for an answer that got lost. The kernel answers while the request is being sent.
const answerTimeout = 10 * time.Second

// smallBuffer is the first size of the send buffer; the receive buffer is four times as large. A batch goes to the
// kernel in one system call and must fit in the send buffer. The receive buffer must take an answer to each message of
// a refused batch.
const smallBuffer = 1 << 20

// dial opens a socket in the network namespace of a file descriptor; 0: in the present one.
func dial(netns int) (c *conn, err error) {
	c = &conn{netns: netns, answers: make([]byte, 1<<16), patience: answerTimeout}
	for range 10 {
		c.port = newPort()
		if err = c.open(); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return c, err
}

// newPort is an address for a socket. The kernel gives the sockets of a process addresses of its own: the number of the
// process, which is smaller, or negative ones. So no other socket gets the address while this one is lost.
func newPort() uint32 {
	const least, end = 1 << 22, 1 << 31 // from PID_MAX_LIMIT to the negative ones
	return least + rand.Uint32N(end-least)
}

// reopen opens another socket in the place of one that is lost. If we own the tables, the kernel takes the owner from them
// with the socket. The next look at them finds that (lostOwner).
func (c *conn) reopen() error {
	if !c.loss.Lost() {
		return nil
	}
	return c.open()
}

func (c *conn) note(err error) error { return c.loss.Note(c.sock, err) }

// open opens the socket. One that replaces another has its address: the watcher tells the engine's commits from those of
// other processes by it.
func (c *conn) open() error {
	sock, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, "nf_tables", &socket.Config{NetNS: c.netns})
	if err != nil {
		return fmt.Errorf("open netlink socket to nf_tables: %w", err)
	}
	c.sock, c.writeBuffer, c.unread = sock, 0, false
	if err := c.prepare(); err != nil {
		return errors.Join(err, sock.Close())
	}
	c.loss.Replaced()
	return nil
}

func (c *conn) prepare() error {
	if err := c.sock.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: c.port}); err != nil {
		return fmt.Errorf("bind netlink socket to nf_tables to address %d: %w", c.port, err)
	}
	// The kernel's errors name the attribute at fault, and do not repeat the message (up to 64 KiB) that they answer.
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

// growWriteBuffer makes room for a batch. It needs CAP_NET_ADMIN in the initial user namespace (SO_SNDBUFFORCE);
// without, the kernel limits the buffer to net.core.wmem_max (SO_SNDBUF).
func (c *conn) growWriteBuffer(size int) error {
	if size <= c.writeBuffer {
		return nil
	}
	if err := c.note(c.sock.SetWriteBuffer(size)); err != nil {
		return fmt.Errorf("size netlink send buffer for %d bytes: %w", size, err)
	}
	c.writeBuffer = size
	return nil
}

// capacity is the size of the largest batch that fits in the present send buffer, or in that of the socket that replaces
// a lost one.
func (c *conn) capacity() int {
	size, err := c.sock.WriteBuffer()
	if c.note(err) != nil {
		size = smallBuffer
	}
	return size - 32 // which netlink_sendmsg keeps for itself
}

func (c *conn) close() error { return c.sock.Close() }

// send gives a batch to the kernel. The kernel processes it inside the system call, so all answers are there when the
// call returns. Without any answer the outcome is unknown.
func (c *conn) send(b *batch) (Outcome, *nlmsg.Ack, error) {
	if err := c.reopen(); err != nil {
		return Rejected, nil, err
	}
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

// sendRaw sends a request. The caller that has read all answers sets unread to false.
func (c *conn) sendRaw(messages []byte) error {
	if err := c.reopen(); err != nil {
		return err
	}
	c.drain()
	c.unread = true
	if err := c.note(nlmsg.Send(c.sock, messages)); err != nil {
		return fmt.Errorf("send %d bytes to nf_tables: %w", len(messages), err)
	}
	return nil
}

// errSlow ends a reading that has a deadline.
var errSlow = errors.New("the answers took too long")

// wait receives the next datagram.
func (c *conn) wait() (int, error) {
	if !c.deadline.IsZero() && time.Now().After(c.deadline) {
		return 0, errSlow
	}
	if err := c.note(c.sock.SetReadDeadline(time.Now().Add(c.patience))); err != nil {
		return 0, fmt.Errorf("set read deadline: %w", err)
	}
	n, _, err := c.sock.Recvfrom(context.Background(), c.answers, 0)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("none came within %s", c.patience)
	}
	return n, c.note(err)
}

// sendFailure is the outcome after a failed system call: Rejected for errors that occur before the kernel reads the
// batch, Unknown for errors that may occur later.
func sendFailure(err error) Outcome {
	for _, before := range []error{unix.EMSGSIZE, unix.ENOMEM, unix.EPERM, unix.EBADF, unix.ENOTSOCK, unix.EACCES} {
		if errors.Is(err, before) {
			return Rejected
		}
	}
	return Unknown
}

// drain discards answers to an earlier request.
func (c *conn) drain() {
	for c.unread {
		_, err := c.receive()
		c.unread = err == nil || errors.Is(err, unix.ENOBUFS)
	}
}

// collect reads answers up to the one for the last message. Errors come before it, in the order of the messages; an
// error of the opening message means that the commit as a whole failed. If the errors did not fit in the receive
// buffer, the first read reports ENOBUFS, and the errors that did fit can still be read.
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

// receive reads a datagram without waiting: an answer that is not there yet will never come.
func (c *conn) receive() (n int, err error) {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return 0, err
	}
	readErr := raw.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), c.answers, unix.MSG_DONTWAIT)
	})
	return n, c.note(errors.Join(readErr, err))
}
