package nlmsg

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	// HeaderSize is the size of struct nlmsghdr, with which every message begins.
	HeaderSize = 16
	// FamilySize is the size of struct nfgenmsg, which follows in the messages of netfilter.
	FamilySize = 4
	// AttributeHeaderSize is the size of struct nlattr.
	AttributeHeaderSize = 4
	// MaxAttribute is the largest length of an attribute, its header and everything nested in it included.
	MaxAttribute = 1<<16 - 1
)

// Writer appends messages to a buffer. Its methods do not check lengths: the caller keeps each attribute within
// MaxAttribute.
type Writer struct {
	// Buf holds the messages written so far. The caller may send it, truncate it, or make room in it.
	Buf []byte
	// Seq is the sequence number of the latest message.
	Seq uint32
}

// Begin starts a request with the next sequence number and returns where it starts in Buf; close it with End. The
// resource is zero except in the messages that open and close a batch.
func (w *Writer) Begin(kind, flags uint16, family uint8, resource uint16) int {
	start := len(w.Buf)
	w.Seq++
	w.Buf = binary.NativeEndian.AppendUint32(w.Buf, 0)
	w.Buf = binary.NativeEndian.AppendUint16(w.Buf, kind)
	w.Buf = binary.NativeEndian.AppendUint16(w.Buf, flags|unix.NLM_F_REQUEST)
	w.Buf = binary.NativeEndian.AppendUint32(w.Buf, w.Seq)
	w.Buf = binary.NativeEndian.AppendUint32(w.Buf, 0) // the port of the sender, which the kernel knows
	w.Buf = append(w.Buf, family, unix.NFNETLINK_V0)
	w.Buf = binary.BigEndian.AppendUint16(w.Buf, resource)
	return start
}

// End closes the message that starts at an offset of Buf.
func (w *Writer) End(start int) {
	binary.NativeEndian.PutUint32(w.Buf[start:], uint32(len(w.Buf)-start))
}

// AddFlags sets more flags in the message that starts at an offset of Buf.
func (w *Writer) AddFlags(start int, flags uint16) {
	at := w.Buf[start+6:]
	binary.NativeEndian.PutUint16(at, binary.NativeEndian.Uint16(at)|flags)
}

// Nest starts an attribute that consists of attributes and returns where it starts in Buf; close it with Unnest.
func (w *Writer) Nest(kind uint16) int {
	start := len(w.Buf)
	w.Header(kind|unix.NLA_F_NESTED, 0)
	return start
}

// Unnest closes the attribute that starts at an offset of Buf.
func (w *Writer) Unnest(start int) {
	binary.NativeEndian.PutUint16(w.Buf[start:], uint16(len(w.Buf)-start))
}

// Bytes writes an attribute whose value is bytes.
func (w *Writer) Bytes(kind uint16, value []byte) {
	w.Header(kind, len(value))
	w.Raw(value)
}

// Text writes an attribute whose value is a string with its closing zero.
func (w *Writer) Text(kind uint16, value string) {
	w.Header(kind, len(value)+1)
	w.Buf = append(w.Buf, value...)
	w.Buf = append(w.Buf, 0)
	w.Pad()
}

// Uint8 writes an attribute whose value is a byte.
func (w *Writer) Uint8(kind uint16, value uint8) {
	w.Header(kind, 1)
	w.Buf = append(w.Buf, value, 0, 0, 0)
}

// Uint16 writes an attribute whose value is a number of 16 bits in network byte order.
func (w *Writer) Uint16(kind, value uint16) {
	w.Header(kind, 2)
	w.Buf = append(w.Buf, byte(value>>8), byte(value), 0, 0)
}

// Uint32 writes an attribute whose value is a number of 32 bits in network byte order.
func (w *Writer) Uint32(kind uint16, value uint32) {
	w.Header(kind, 4)
	w.Buf = binary.BigEndian.AppendUint32(w.Buf, value)
}

// Raw writes attributes that are encoded already, and pads them.
func (w *Writer) Raw(attributes []byte) {
	w.Buf = append(w.Buf, attributes...)
	w.Pad()
}

// Header writes the header of an attribute. The caller appends a value of the given length to Buf, and then calls Pad.
func (w *Writer) Header(kind uint16, length int) {
	w.Buf = binary.NativeEndian.AppendUint16(w.Buf, uint16(AttributeHeaderSize+length))
	w.Buf = binary.NativeEndian.AppendUint16(w.Buf, kind)
}

// Pad appends zeros up to the next multiple of four bytes.
func (w *Writer) Pad() {
	for len(w.Buf)%4 != 0 {
		w.Buf = append(w.Buf, 0)
	}
}
