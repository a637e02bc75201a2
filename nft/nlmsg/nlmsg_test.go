package nlmsg

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Datagrams that a kernel (6.18, little-endian) has sent.
var (
	// refused: the deletion of an element of a map of nf_tables that does not exist.
	refused = recorded("2c000000020000030200000060500000feffffff400000000e0a050002000000000000000800020030000000")
	// elements: a set of nf_tables with two elements, each a concatenation of two IPv4 addresses.
	elements = recorded("580000000c0a02000500000060500000020000020c00010076657264696374000c0002006861697270696e00" +
		"2c00030014000100100001000c0001000a0001010a00010114000100100001000c0001000a0001020a000102")
	// end of that dump, after a message without elements.
	end = recorded("300000000c0a02000500000060500000020000020c00010076657264696374000c0002006861697270696e0004000300" +
		"1400000003000200050000006050000000000000")
)

func recorded(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}

// TestWriterEqualsLibrary compares with the messages of mdlayher/netlink.
func TestWriterEqualsLibrary(t *testing.T) {
	var w Writer
	w.Seq = 41
	first := w.Begin(0x0a09, unix.NLM_F_CREATE, unix.AF_INET6, 10)
	w.Text(1, "verdict")
	w.Uint8(2, 17)
	w.Uint16(3, 0x1234)
	w.Uint32(4, 0x12345678)
	outer := w.Nest(5)
	for _, value := range []string{"", "a", "ab", "abc", "abcd"} {
		w.Bytes(6, []byte(value))
	}
	inner := w.Nest(7)
	w.Unnest(inner)
	w.Raw([]byte{5, 0, 8, 0, 'x'}) // an attribute of one byte
	w.Unnest(outer)
	w.Header(9, 3)
	w.Buf = append(w.Buf, "xyz"...)
	w.Pad()
	w.End(first)
	w.AddFlags(first, unix.NLM_F_ACK)
	second := w.Begin(0x0102, 0, unix.AF_INET, 0)
	w.End(second)

	e := netlink.NewAttributeEncoder()
	e.String(1, "verdict")
	e.Uint8(2, 17)
	e.Bytes(3, []byte{0x12, 0x34})
	e.Bytes(4, []byte{0x12, 0x34, 0x56, 0x78})
	e.Nested(5, func(n *netlink.AttributeEncoder) error {
		for _, value := range []string{"", "a", "ab", "abc", "abcd"} {
			n.Bytes(6, []byte(value))
		}
		n.Nested(7, func(*netlink.AttributeEncoder) error { return nil })
		n.Bytes(8, []byte("x"))
		return nil
	})
	e.Bytes(9, []byte("xyz"))
	attributes, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, m := range []netlink.Message{
		{
			Header: netlink.Header{Type: 0x0a09, Flags: netlink.Request | netlink.Create | netlink.Acknowledge, Sequence: 42},
			Data:   append([]byte{unix.AF_INET6, unix.NFNETLINK_V0, 0, 10}, attributes...),
		},
		{Header: netlink.Header{Type: 0x0102, Flags: netlink.Request, Sequence: 43}, Data: []byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0}},
	} {
		m.Header.Length = uint32(HeaderSize + len(m.Data))
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, b...)
	}
	if !bytes.Equal(w.Buf, want) {
		t.Errorf("written:\n%x\nby the library:\n%x", w.Buf, want)
	}
	if second != len(want)-HeaderSize-FamilySize || w.Seq != 43 {
		t.Errorf("the second message begins at %d and has number %d", second, w.Seq)
	}
}

// TestAttributes reads the elements of a set.
func TestAttributes(t *testing.T) {
	m := NewMessages(elements)
	if !m.Next() || m.Kind != 0x0a0c || m.Flags != unix.NLM_F_MULTI || m.Seq != 5 {
		t.Fatalf("read as %+v", m)
	}
	if _, is := m.Ack(); is {
		t.Error("an answer with content is taken for an acknowledgment")
	}
	type attribute struct {
		Kind   uint16
		Value  string
		Offset int
	}
	var got []attribute
	var pairs []string
	for a := m.Attributes(); a.Next(); {
		if a.Kind != 3 {
			got = append(got, attribute{a.Kind, a.Text(), a.Offset})
			continue
		}
		got = append(got, attribute{Kind: a.Kind, Offset: a.Offset})
		for e := a.Nested(); e.Next(); {
			for key := e.Nested(); key.Next(); {
				for value := key.Nested(); value.Next(); {
					pairs = append(pairs, hex.EncodeToString(value.Value))
				}
			}
		}
	}
	if diff := cmp.Diff([]attribute{{1, "verdict", 0}, {2, "hairpin", 12}, {3, "", 24}}, got); diff != "" {
		t.Errorf("attributes (- wanted, + read):\n%s", diff)
	}
	if want := []string{"0a0001010a000101", "0a0001020a000102"}; !slices.Equal(pairs, want) {
		t.Errorf("elements %v, want %v", pairs, want)
	}
	if m.Next() || m.Err() != nil {
		t.Errorf("after the only message: %+v, %v", m, m.Err())
	}
}

// TestNumbers: a number of another length than expected is 0.
func TestNumbers(t *testing.T) {
	var w Writer
	w.Uint8(1, 7)
	w.Uint16(2|unix.NLA_F_NET_BYTEORDER, 0x0102)
	w.Uint32(3|unix.NLA_F_NESTED, 0x01020304)
	type numbers struct {
		kind, short uint16
		long        uint32
	}
	var got []numbers
	for a := NewAttributes(w.Buf); a.Next(); {
		got = append(got, numbers{a.Kind, a.Uint16(), a.Uint32()})
	}
	if want := []numbers{{1, 0, 0}, {2, 0x0102, 0}, {3, 0, 0x01020304}}; !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

func TestAck(t *testing.T) {
	withText := []byte("\x38\x00\x00\x00\x02\x00\x00\x02\x09\x00\x00\x00\x00\x00\x00\x00\xef\xff\xff\xff" + // all of the request
		"\x14\x00\x00\x00\x00\x0a\x05\x00\x09\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00" + "\x0e\x00\x01\x00in the way\x00\x00\x00")[:56]
	for name, test := range map[string]struct {
		datagram []byte
		want     Ack
		text     string
	}{
		"refusal of an attribute": {refused, Ack{Seq: 2, Errno: unix.ENOENT, Offset: 0x30}, "no such file or directory"},
		"a text":                  {withText, Ack{Seq: 9, Errno: unix.EEXIST, Text: "in the way"}, "file exists (in the way)"},
		"success":                 {ackOf(7, 0), Ack{Seq: 7}, ""},
		"failure":                 {ackOf(7, unix.EPERM), Ack{Seq: 7, Errno: unix.EPERM}, "operation not permitted"},
		"end of a dump":           {end[48:], Ack{Seq: 5}, ""},
	} {
		m := NewMessages(test.datagram)
		if !m.Next() {
			t.Fatalf("%s: no message", name)
		}
		got, ok := m.Ack()
		if !ok || got != test.want {
			t.Errorf("%s: %+v, %t; want %+v", name, got, ok, test.want)
		}
		if err := got.Err(); (err == nil) != (test.text == "") || err != nil && (err.Error() != test.text || !errors.Is(err, test.want.Errno)) {
			t.Errorf("%s: error %v, want %q", name, err, test.text)
		}
	}
}

// ackOf is an acknowledgment without attributes.
func ackOf(seq uint32, errno unix.Errno) []byte {
	w := Writer{Seq: seq - 1}
	start := w.Begin(unix.NLMSG_ERROR, 0, 0, 0)
	code := -int32(errno)
	w.Buf = append(w.Buf[:HeaderSize], byte(code), byte(code>>8), byte(code>>16), byte(code>>24))
	w.Buf = append(w.Buf, make([]byte, HeaderSize)...)
	w.End(start)
	return w.Buf
}

// TestCutShort cuts a datagram of two messages everywhere: what is whole is read, the rest is an error.
func TestCutShort(t *testing.T) {
	for cut := range end {
		m, count := NewMessages(end[:cut]), 0
		for m.Next() {
			count++
		}
		want := 0
		if cut >= 48 {
			want = 1
		}
		if whole := cut == 0 || cut == 48; count != want || (m.Err() == nil) != whole {
			t.Errorf("cut at %d: %d messages, %v", cut, count, m.Err())
		}
	}
	for _, length := range []byte{0, HeaderSize - 1, 255} {
		b := slices.Clone(end)
		b[0] = length
		if m := NewMessages(b); m.Next() || !errors.Is(m.Err(), ErrCutShort) {
			t.Errorf("a message of length %d: read as %+v", length, m)
		}
	}
	for _, length := range []byte{0, AttributeHeaderSize - 1, 13} {
		b := []byte{length, 0, 1, 0, 'v', 'e', 'r', 'd', 'i', 'c', 't', 0}
		if a := NewAttributes(b); a.Next() {
			t.Errorf("an attribute of length %d: read as %+v", length, a)
		}
	}
}
