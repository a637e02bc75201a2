package nlmsg

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzRead reads any bytes as a datagram: nothing panics, and what is read lies inside the datagram, in order.
func FuzzRead(f *testing.F) {
	f.Add([]byte{})
	f.Add(refused)
	f.Add(elements)
	f.Add(end)
	f.Add(append(ackOf(1, unix.EPERM), refused...))
	f.Add(refused[:len(refused)-3])
	f.Add([]byte("\x14\x00\x00\x00\x03\x000000000000\x00\x00\x00\x80")) // the error code that has no positive number
	f.Fuzz(func(t *testing.T, datagram []byte) {
		read, m := 0, NewMessages(datagram)
		for m.Next() {
			start := cap(datagram) - cap(m.Body) // the body is a part of the datagram
			if start < read+HeaderSize || start > read+HeaderSize+3 || start+len(m.Body) > len(datagram) {
				t.Fatalf("a body from %d to %d, in a datagram of %d of which %d were read", start, start+len(m.Body), len(datagram), read)
			}
			read = start + len(m.Body)
			ack, is := m.Ack()
			if !is && ack != (Ack{}) || int64(ack.Errno) < 0 {
				t.Fatalf("acknowledgment %+v, %t", ack, is)
			}
			if err := ack.Err(); (err == nil) != (ack.Errno == 0) {
				t.Fatalf("acknowledgment %+v with the error %v", ack, err)
			}
			checkAttributes(t, m.Attributes(), m.Body[min(FamilySize, len(m.Body)):], 0)
		}
		if err := m.Err(); err == nil && len(datagram) > read+3 {
			t.Fatalf("%d of %d bytes were read, without an error", read, len(datagram))
		}
	})
}

// checkAttributes reads every value as everything that it can be.
func checkAttributes(t *testing.T, a Attributes, within []byte, depth int) {
	next := 0
	for a.Next() {
		if a.Offset != next || !bytes.Equal(within[a.Offset:a.Offset+len(a.Whole)], a.Whole) || len(a.Value) > len(a.Whole) {
			t.Fatalf("attribute %+v at %d, want %d", a, a.Offset, next)
		}
		next += len(a.Whole)
		_, _, _ = a.Text(), a.Uint16(), a.Uint32()
		if depth < 8 {
			checkAttributes(t, a.Nested(), a.Value, depth+1)
		}
	}
}

// FuzzRoundTrip writes values and reads them back.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint16(1), uint16(2), uint32(3), "four", []byte("5"))
	f.Add(uint16(0xffff), uint16(0xffff), uint32(0xffffffff), "", []byte{})
	f.Fuzz(func(t *testing.T, kind, short uint16, long uint32, text string, value []byte) {
		if len(text)+len(value) > MaxAttribute/2 {
			return
		}
		var w Writer
		message := w.Begin(kind, 0, unix.AF_INET, 0)
		nested := w.Nest(1)
		w.Uint16(2, short)
		w.Uint32(3, long)
		w.Text(4, text)
		w.Bytes(5, value)
		w.Unnest(nested)
		w.End(message)

		m := NewMessages(w.Buf)
		outer := Attributes{}
		if !m.Next() || m.Kind != kind || m.Flags != unix.NLM_F_REQUEST {
			t.Fatalf("read as %+v", m)
		}
		if outer = m.Attributes(); !outer.Next() || outer.Kind != 1 {
			t.Fatalf("read as %+v", outer)
		}
		a := outer.Nested()
		for a.Next() {
			switch {
			case a.Kind == 2 && a.Uint16() == short, a.Kind == 3 && a.Uint32() == long, a.Kind == 5 && bytes.Equal(a.Value, value):
			case a.Kind == 4 && string(a.Value) == text+"\x00":
			default:
				t.Fatalf("read as %+v", a)
			}
		}
		if a.Kind != 5 || outer.Next() || m.Next() || m.Err() != nil {
			t.Fatalf("ends after attribute %d; %v", a.Kind, m.Err())
		}
	})
}
