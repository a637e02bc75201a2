package nlmsg

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrCutShort means that a datagram ends within a message, or that the length in a message's header is impossible.
var ErrCutShort = errors.New("a netlink message is cut short")

// Messages walks over the messages of a datagram:
//
//	for m := nlmsg.NewMessages(datagram); m.Next(); {
//		// m.Kind, m.Flags, m.Seq, m.Body
//	}
//
// A walk that ended early has an error.
type Messages struct {
	Kind  uint16 // as in the header: of netfilter, the subsystem in the upper byte and the message in the lower one
	Flags uint16
	Seq   uint32
	Body  []byte // everything after the header

	rest []byte
	err  error
}

// NewMessages begins a walk. The bytes must stay unchanged until it is over.
func NewMessages(datagram []byte) Messages { return Messages{rest: datagram} }

// Next goes to the next message and reports whether there is one.
func (m *Messages) Next() bool {
	if len(m.rest) == 0 {
		return false
	}
	if len(m.rest) < HeaderSize {
		return m.cutShort()
	}
	length := binary.NativeEndian.Uint32(m.rest)
	if length < HeaderSize || uint64(length) > uint64(len(m.rest)) {
		return m.cutShort()
	}
	m.Kind = binary.NativeEndian.Uint16(m.rest[4:])
	m.Flags = binary.NativeEndian.Uint16(m.rest[6:])
	m.Seq = binary.NativeEndian.Uint32(m.rest[8:])
	m.Body = m.rest[HeaderSize:length]
	m.rest = m.rest[min(aligned(int(length)), len(m.rest)):]
	return true
}

func (m *Messages) cutShort() bool {
	m.rest, m.Body, m.err = nil, nil, ErrCutShort
	return false
}

// Err is ErrCutShort after a walk that ended before the end of the datagram, otherwise nil.
func (m *Messages) Err() error { return m.err }

// Attributes begins a walk over the attributes of a message of netfilter. In messages of netlink itself (NLMSG_ERROR,
// NLMSG_DONE) the body is no attributes; see Ack.
func (m *Messages) Attributes() Attributes {
	return NewAttributes(m.Body[min(FamilySize, len(m.Body)):])
}

// Ack reads the kernel's acknowledgment of a request. It reports false for messages that are not acknowledgments, but
// answers with content.
func (m *Messages) Ack() (Ack, bool) {
	if m.Kind != unix.NLMSG_ERROR && m.Kind != unix.NLMSG_DONE {
		return Ack{}, false
	}
	a := Ack{Seq: m.Seq}
	if len(m.Body) >= 4 {
		if code := int32(binary.NativeEndian.Uint32(m.Body)); code < 0 {
			a.Errno = unix.Errno(-int64(code))
		}
	}
	if m.Kind == unix.NLMSG_ERROR && m.Flags&unix.NLM_F_ACK_TLVS != 0 && len(m.Body) >= 4+HeaderSize {
		a.read(NewAttributes(m.Body[min(4+m.repeated(), len(m.Body)):]))
	}
	return a, true
}

// repeated is how many bytes of the request an error repeats before its attributes: only the header, or all of it.
func (m *Messages) repeated() int {
	if m.Flags&unix.NLM_F_CAPPED != 0 {
		return HeaderSize
	}
	length := binary.NativeEndian.Uint32(m.Body[4:])
	return aligned(int(min(length, uint32(len(m.Body)))))
}

// Ack is the kernel's acknowledgment of a request, or of one message of a batch.
type Ack struct {
	Seq    uint32 // of the message that it is about
	Errno  unix.Errno
	Offset uint32 // of the attribute at fault, from the start of the message; 0: not known
	Text   string // in the kernel's words; often empty
}

// Attributes of an extended acknowledgment (kernel: enum nlmsgerr_attrs).
const (
	ackMessage = 1
	ackOffset  = 2
)

func (a *Ack) read(attributes Attributes) {
	for attributes.Next() {
		switch {
		case attributes.Kind == ackMessage:
			a.Text = attributes.Text()
		case attributes.Kind == ackOffset && len(attributes.Value) == 4:
			a.Offset = binary.NativeEndian.Uint32(attributes.Value)
		}
	}
}

// Err is the error, in the kernel's words if it has any; nil means success.
func (a *Ack) Err() error {
	switch {
	case a.Errno == 0:
		return nil
	case a.Text != "":
		return fmt.Errorf("%w (%s)", a.Errno, a.Text)
	}
	return a.Errno
}

// Attributes walks over attributes:
//
//	for a := m.Attributes(); a.Next(); {
//		// a.Kind, a.Value
//	}
//
// An attribute that is cut short ends the walk.
type Attributes struct {
	Kind   uint16 // without the flags that it may carry
	Value  []byte
	Whole  []byte // header, value and padding
	Offset int    // of the header, from the start of the walk

	rest []byte
}

// NewAttributes begins a walk. The bytes must stay unchanged until it is over.
func NewAttributes(b []byte) Attributes { return Attributes{rest: b} }

// flagBits may be set in the type of an attribute (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const flagBits = uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)

// Next goes to the next attribute and reports whether there is one.
func (a *Attributes) Next() bool {
	if len(a.rest) < AttributeHeaderSize {
		return false
	}
	length := int(binary.NativeEndian.Uint16(a.rest))
	if length < AttributeHeaderSize || length > len(a.rest) {
		a.rest = nil
		return false
	}
	a.Offset += len(a.Whole)
	a.Kind = binary.NativeEndian.Uint16(a.rest[2:]) &^ flagBits
	a.Value = a.rest[AttributeHeaderSize:length]
	a.Whole = a.rest[:min(aligned(length), len(a.rest))]
	a.rest = a.rest[len(a.Whole):]
	return true
}

// Find is at the first attribute of a kind among those that are left of the walk. It is empty if there is none.
func (a Attributes) Find(kind uint16) Attributes {
	for a.Next() {
		if a.Kind == kind {
			return a
		}
	}
	return Attributes{}
}

// Nested begins a walk over the attributes that the value consists of.
func (a Attributes) Nested() Attributes { return NewAttributes(a.Value) }

// Text is a value that is a string, up to its closing zero.
func (a Attributes) Text() string { return unix.ByteSliceToString(a.Value) }

// Uint16 is a value that is a number of 16 bits in network byte order; 0 when it has another length.
func (a Attributes) Uint16() uint16 {
	if len(a.Value) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(a.Value)
}

// Uint32 is a value that is a number of 32 bits in network byte order; 0 when it has another length.
func (a Attributes) Uint32() uint32 {
	if len(a.Value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(a.Value)
}

// Uint64 is a value that is a number of 64 bits in network byte order; 0 when it has another length.
func (a Attributes) Uint64() uint64 {
	if len(a.Value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(a.Value)
}

// aligned is the length that something takes, with its padding.
func aligned(length int) int { return (length + 3) &^ 3 }
