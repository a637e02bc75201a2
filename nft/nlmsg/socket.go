package nlmsg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
)

// Conn is a netlink socket to a part of netfilter. One goroutine uses it.
type Conn struct {
	*socket.Conn
	Patience time.Duration // how long an answer may take
	Deadline time.Time     // when all reading ends; zero: when Patience does
	Unread   bool          // answers to a request may still come; the next Send discards them
	to       string        // the part of netfilter, for errors
	answers  []byte
}

// AnswerTimeout ends the wait for an answer that got lost. The kernel answers while the request is being sent.
const AnswerTimeout = 10 * time.Second

// Dial opens a socket in the network namespace of a file descriptor; 0: in the present one.
func Dial(to string, netns int) (*Conn, error) {
	sock, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, to, &socket.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket to %s: %w", to, err)
	}
	err = sock.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	// The kernel's errors name the attribute at fault, and do not repeat the message (up to 64 KiB) that they answer.
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		if err == nil {
			err = sock.SetsockoptInt(unix.SOL_NETLINK, option, 1)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up netlink socket to %s: %w", to, err), sock.Close())
	}
	return NewConn(to, sock), nil
}

// NewConn uses a socket that is open.
func NewConn(to string, sock *socket.Conn) *Conn {
	return &Conn{Conn: sock, to: to, Patience: AnswerTimeout, answers: make([]byte, 1<<16)}
}

// Subscribe makes the kernel send the messages of a group.
func (c *Conn) Subscribe(group int) error {
	if err := c.SetsockoptInt(unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
		return fmt.Errorf("subscribe to group %d of %s: %w", group, c.to, err)
	}
	return nil
}

// Hear waits for messages of a group until the context ends.
func (c *Conn) Hear(ctx context.Context) (Messages, error) {
	n, _, err := c.Recvfrom(ctx, c.answers, 0)
	return NewMessages(c.answers[:max(n, 0)]), err
}

// Send gives messages to the kernel, and does not wait. A netlink socket never waits for room, so a poll after EINTR or EAGAIN
// could wait for ever. After an error, the kernel may have the messages or not. Whoever reads all answers sets Unread to false.
func (c *Conn) Send(messages []byte) error {
	for c.Unread {
		_, err := c.Poll()
		c.Unread = err == nil || errors.Is(err, unix.ENOBUFS)
	}
	c.Unread = true
	raw, err := c.SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) {
			err = unix.Sendto(int(fd), messages, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		})
		err = errors.Join(controlErr, err)
	}
	if err != nil {
		return fmt.Errorf("send %d bytes to %s: %w", len(messages), c.to, err)
	}
	return nil
}

// Poll reads answers without waiting: one that is not there yet will never come.
func (c *Conn) Poll() (Messages, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Messages{}, err
	}
	n := 0
	controlErr := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), c.answers, unix.MSG_DONTWAIT) })
	return NewMessages(c.answers[:max(n, 0)]), errors.Join(controlErr, err)
}

// ErrSlow ends a reading that has a deadline.
var ErrSlow = errors.New("the answers took too long")

// Receive waits for the next answers. Nearly always they are there: package socket needs a goroutine to wait for them.
func (c *Conn) Receive() (Messages, error) {
	if !c.Deadline.IsZero() && time.Now().After(c.Deadline) {
		return Messages{}, c.unanswered(ErrSlow)
	}
	if m, err := c.Poll(); !errors.Is(err, unix.EAGAIN) {
		return m, c.unanswered(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(c.Patience)); err != nil {
		return Messages{}, c.unanswered(fmt.Errorf("set read deadline: %w", err))
	}
	m, err := c.Hear(context.Background())
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("none came within %s", c.Patience)
	}
	return m, c.unanswered(err)
}

func (c *Conn) unanswered(err error) error {
	if err != nil {
		err = fmt.Errorf("read the answer of %s: %w", c.to, err)
	}
	return err
}

// ErrInterrupted means that the kernel's objects changed between two datagrams of a list. The kernel finds its place again by
// counting objects, so the list may lack some objects and have others twice.
var ErrInterrupted = errors.New("the list changed while it was read")

// Answers calls each with the attributes of every answer to a request.
func (c *Conn) Answers(seq uint32, each func(Attributes)) error {
	for interrupted := false; ; {
		last, changed, err := c.Part(seq, each)
		interrupted = interrupted || changed
		switch {
		case err != nil:
			return err
		case last && interrupted:
			return ErrInterrupted
		case last:
			return nil
		}
	}
}

// Part reads the next answers to a request. It reports whether the last one was among them, and whether the kernel's objects
// changed since the one before.
func (c *Conn) Part(seq uint32, each func(Attributes)) (last, changed bool, err error) {
	m, err := c.Receive()
	if err != nil {
		return false, false, err
	}
	for m.Next() {
		if m.Seq != seq {
			continue // the answer to an earlier request
		}
		changed = changed || m.Flags&unix.NLM_F_DUMP_INTR != 0
		ack, isAck := m.Ack()
		if !isAck {
			each(m.Attributes())
			continue
		}
		if ack.Errno == 0 {
			c.Unread = false
		}
		return true, changed, ack.Err()
	}
	return false, changed, c.unanswered(m.Err())
}
