package kernel

import (
	"errors"
	"fmt"

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

// Send gives a batch to the kernel. The kernel processes it inside the system call, so all answers are there when the
// call returns. Without any answer the outcome is unknown.
func (c *Conn) Send(b *Batch) (Outcome, *nlmsg.Ack, error) {
	if err := c.reopen(); err != nil {
		return Rejected, nil, err
	}
	if err := c.growWriteBuffer(len(b.Buf) + len(b.Buf)/8); err != nil {
		return Rejected, nil, err
	}
	if err := c.sendRaw(b.Buf); err != nil {
		return sendFailure(err), nil, err
	}
	outcome, why, err := c.collect(b.First, b.Last)
	c.unread = outcome != Applied
	return outcome, why, err
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

// collect reads answers up to the one for the last message. Errors come before it, in the order of the messages; an
// error of the opening message means that the commit as a whole failed. If the errors did not fit in the receive
// buffer, the first read reports ENOBUFS, and the errors that did fit can still be read.
func (c *Conn) collect(first, last uint32) (Outcome, *nlmsg.Ack, error) {
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
