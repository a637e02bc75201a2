package kernel

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// log is messages, and what each of them is about, to name the change that the kernel refuses.
type log struct {
	Wire
	Tx       *program.Transaction // which the batch carries, or a part of it
	Messages []MessageInfo
	apart    *MessageInfo // its elements get messages of their own; nil: none does
}

// MessageInfo is what a message is about: an operation, or several elements of one set.
type MessageInfo struct {
	Seq       uint32
	Start     int
	Operation *program.Operation
	Family    program.Family
	Set       program.SetID
	Deletion  bool
	Element   int // index of the first element
	count     int // of elements
}

// Blame names what the kernel refused: an operation, or an element if the kernel named one.
func (b *log) Blame(t *program.Transaction, why *nlmsg.Ack) string {
	for _, m := range b.Messages {
		if m.Seq != why.Seq {
			continue
		}
		if m.Operation != nil {
			return m.Operation.String()
		}
		return b.blameElement(t, m, why.Offset)
	}
	return "the transaction as a whole"
}

// IsStamp reports whether the kernel refused to change the stamp of a table.
func (b *log) IsStamp(why *nlmsg.Ack) bool {
	return slices.ContainsFunc(b.Messages, func(m MessageInfo) bool {
		return m.Seq == why.Seq && m.Operation == nil && m.Set == program.Generation
	})
}

func (b *log) blameElement(t *program.Transaction, m MessageInfo, offset uint32) string {
	verb := "add"
	if m.Deletion {
		verb = "delete"
	}
	defs := program.Program{Family: m.Family}.Sets()
	d := &defs[m.Set]
	what := fmt.Sprintf("%s element %s %s %s", verb, m.Family, program.TableName, d.Name)
	i, list := b.refusedElement(m, offset), m.Elements(t)
	if i < 0 || i >= len(list) {
		return what
	}
	return what + " { " + list[i].Text(d, t.Arena) + " }"
}

// Elements are the elements that the message is about.
func (m MessageInfo) Elements(t *program.Transaction) []program.Element {
	changes := &t.Changes[m.Family.Index()][m.Set]
	list := changes.Add
	if m.Deletion {
		list = changes.Delete
	}
	return list[m.Element : m.Element+m.count]
}

// OffsetOf is the offset of an element in its message, the inverse of refusedElement.
func (b *log) OffsetOf(m MessageInfo, element int) uint32 {
	for e, i := b.elementList(m), 0; e.Next(); i++ {
		if i == element {
			return e.offset()
		}
	}
	return 0
}

func (b *log) elementList(m MessageInfo) elementList {
	message := nlmsg.NewMessages(b.Buf[m.Start:])
	message.Next()
	for a := message.Attributes(); a.Next(); {
		if a.Kind == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			const header = nlmsg.HeaderSize + nlmsg.FamilySize
			return elementList{Attributes: a.Nested(), start: header + a.Offset + nlmsg.AttributeHeaderSize}
		}
	}
	return elementList{}
}

// RefusedKey is the key of the new element that the kernel refused; nil: it was not an element, or the kernel did not name
// it.
func (b *log) RefusedKey(why *nlmsg.Ack) (f program.Family, set program.SetID, key []byte) {
	for _, m := range b.Messages {
		if m.Seq != why.Seq || m.Operation != nil || m.Deletion {
			continue
		}
		list, i := m.Elements(b.Tx), b.refusedElement(m, why.Offset)
		if i >= 0 && i < len(list) {
			key = list[i].Key(b.Tx.Arena)
		}
		return m.Family, m.Set, key
	}
	return f, set, nil
}

// refusedElement is the number of the element that the kernel refused, in its message; -1: the kernel does not say.
func (b *log) refusedElement(m MessageInfo, offset uint32) int {
	if m.count == 1 {
		return 0
	}
	for e, i := b.elementList(m), 0; e.Next(); i++ {
		if e.offset() == offset {
			return i
		}
	}
	return -1
}

// Separate has each element of a message get a message of its own from now on. It reports whether there is the message.
func (b *log) Separate(seq uint32) bool {
	i := slices.IndexFunc(b.Messages, func(m MessageInfo) bool { return m.Seq == seq })
	if i < 0 {
		return false
	}
	m := b.Messages[i]
	b.apart = &m
	return true
}

// Join ends what separate began.
func (b *log) Join() { b.apart = nil }

// isApart reports whether the elements of a message are to be alone.
func (b *log) isApart(info MessageInfo) bool {
	a := b.apart
	return a != nil && info.Family == a.Family && info.Set == a.Set && !info.Deletion &&
		info.Element >= a.Element && info.Element < a.Element+a.count
}

// elementList walks over the elements of a message.
type elementList struct {
	nlmsg.Attributes
	start int // of the walk, from the start of the message
}

func (l *elementList) offset() uint32 { return uint32(l.start + l.Offset) }

// Outcome is what happened to a transaction.
type Outcome uint8

// The three outcomes.
const (
	Applied  Outcome = iota // the kernel has all of it
	Rejected                // the kernel has nothing of it
	Unknown                 // the answer was lost, and the engine could not find out
)

func (o Outcome) String() string { return [...]string{"applied", "rejected", "unknown"}[o] }

// Send gives a batch to the kernel. The kernel processes it inside the system call, so all answers are there when the
// call returns. Without any answer the outcome is unknown.
func (c *Conn) Send(b *Batch) (Outcome, *nlmsg.Ack, error) {
	if err := c.growWriteBuffer(len(b.Buf) + len(b.Buf)/8); err != nil {
		return Rejected, nil, err
	}
	if err := c.Conn.Send(b.Buf); err != nil {
		return sendFailure(err), nil, err
	}
	outcome, why, err := c.collect(b.First, b.Last)
	c.Unread = outcome != Applied
	return outcome, why, err
}

// sendFailure is the outcome after a failed system call: Rejected for errors that occur before the kernel reads the
// batch, Unknown for errors that may occur later.
func sendFailure(err error) Outcome {
	before := []error{unix.EMSGSIZE, unix.ENOMEM, unix.EPERM, unix.EACCES}
	if slices.ContainsFunc(before, func(e error) bool { return errors.Is(err, e) }) {
		return Rejected
	}
	return Unknown
}

// collect reads answers up to the one for the last message. Errors come before it, in the order of the messages; an
// error of the opening message means that the commit as a whole failed. If the errors did not fit in the receive
// buffer, the first read reports ENOBUFS, and the errors that did fit can still be read.
func (c *Conn) collect(first, last uint32) (Outcome, *nlmsg.Ack, error) {
	var cause *nlmsg.Ack
	for lost := false; ; {
		m, err := c.Poll()
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
		cause, done, err = firstError(m, first, last, cause)
		switch {
		case err != nil:
			return Unknown, nil, fmt.Errorf("read the answer of nf_tables: %w", err)
		case done && !lost:
			return Applied, nil, nil
		}
	}
}

// firstError finds the first error of a batch among answers, unless there was one before. It reports whether the batch's last
// message was answered, and no message with an error.
func firstError(m nlmsg.Messages, first, last uint32, cause *nlmsg.Ack) (*nlmsg.Ack, bool, error) {
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
