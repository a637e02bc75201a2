package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// wire writes netlink messages into one buffer that is reused from batch to batch. It exists because
// google/nftables allocates several objects for each element: BenchmarkEncode compares the two, TestWireEqualsLibrary
// checks that the bytes are the same.
type wire struct {
	buf []byte
	seq uint32
}

const (
	messageHeader = 16 // struct nlmsghdr
	attrHeader    = 4  // struct nlattr
)

// begin starts a message to nf_tables and returns where it starts.
func (w *wire) begin(kind uint16, flags uint16, f Family) int {
	return w.message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, uint8(f), 0)
}

// message starts any netfilter message.
func (w *wire) message(kind, flags uint16, family uint8, resource uint16) int {
	start := len(w.buf)
	w.seq++
	w.buf = binary.NativeEndian.AppendUint32(w.buf, 0)
	w.buf = binary.NativeEndian.AppendUint16(w.buf, kind)
	w.buf = binary.NativeEndian.AppendUint16(w.buf, flags|unix.NLM_F_REQUEST)
	w.buf = binary.NativeEndian.AppendUint32(w.buf, w.seq)
	w.buf = binary.NativeEndian.AppendUint32(w.buf, 0)
	w.buf = append(w.buf, family, unix.NFNETLINK_V0)
	w.buf = binary.BigEndian.AppendUint16(w.buf, resource)
	return start
}

// end closes a message.
func (w *wire) end(start int) {
	binary.NativeEndian.PutUint32(w.buf[start:], uint32(len(w.buf)-start))
}

// nest starts an attribute that holds attributes; close it with unnest.
func (w *wire) nest(kind uint16) int {
	start := len(w.buf)
	w.buf = append(w.buf, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(w.buf[start+2:], kind|unix.NLA_F_NESTED)
	return start
}

func (w *wire) unnest(start int) {
	binary.NativeEndian.PutUint16(w.buf[start:], uint16(len(w.buf)-start))
}

func (w *wire) bytes(kind uint16, value []byte) {
	w.header(kind, len(value))
	w.buf = append(w.buf, value...)
	w.pad()
}

// text writes a string with its closing zero.
func (w *wire) text(kind uint16, value string) {
	w.header(kind, len(value)+1)
	w.buf = append(w.buf, value...)
	w.buf = append(w.buf, 0)
	w.pad()
}

// comment writes user data that holds nothing but a comment.
func (w *wire) comment(kind uint16, value string) {
	w.header(kind, len(value)+3)
	w.buf = append(w.buf, 0, byte(len(value)+1))
	w.buf = append(w.buf, value...)
	w.buf = append(w.buf, 0)
	w.pad()
}

func (w *wire) uint32(kind uint16, value uint32) {
	w.header(kind, 4)
	w.buf = binary.BigEndian.AppendUint32(w.buf, value)
}

func (w *wire) header(kind uint16, length int) {
	w.buf = binary.NativeEndian.AppendUint16(w.buf, uint16(attrHeader+length))
	w.buf = binary.NativeEndian.AppendUint16(w.buf, kind)
}

func (w *wire) pad() {
	for len(w.buf)%4 != 0 {
		w.buf = append(w.buf, 0)
	}
}
