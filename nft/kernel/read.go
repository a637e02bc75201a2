package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Generation is the number of the latest change of any table in the network namespace.
func (c *Conn) Generation() (n uint32, err error) {
	const generationID = 1 // NFTA_GEN_ID
	err = c.Ask(unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, program.Family(unix.AF_UNSPEC), nil, func(a nlmsg.Attributes) {
		n = a.Find(generationID).Uint32()
	})
	return n, err
}

// SetReader reads all elements of a set in parts. While the set changes, it may leave out some.
type SetReader interface {
	// Next calls each for the elements of the next part, and reports whether there are more.
	Next(each func(Found)) (more bool, err error)
	Close() error
}

// The engine reads from the kernel when it starts, before it writes whole tables, after an Apply whose outcome is
// unknown, and when it is asked whether the tables are intact. A normal pass reads nothing.

// dumpAttempts is how often a dump is attempted if nf_tables changes all the time. An attempt takes a fraction of a
// millisecond. A tool that changes tables a thousand times a second interrupts many of them.
const dumpAttempts = 20

// RetryInterrupted calls read again while it is interrupted. Each time, read must forget what it read before.
func RetryInterrupted(what string, read func() error) error {
	for range dumpAttempts {
		if err := read(); !errors.Is(err, nlmsg.ErrInterrupted) {
			return err
		}
	}
	return fmt.Errorf("list %s: %w, %d times in a row; other programs change tables too often",
		what, nlmsg.ErrInterrupted, dumpAttempts)
}

// Dump asks for all objects of a kind and calls each with the attributes of every object. Attributes of the request
// restrict the dump to our table or to a set; then the kernel counts only objects in there, and changes of other tables
// do not matter. Without such attributes, dump returns nlmsg.ErrInterrupted if any table changed.
func (c *Conn) Dump(kind uint16, f program.Family, attrs func(*nlmsg.Writer), each func(nlmsg.Attributes)) error {
	err := c.Ask(kind, unix.NLM_F_DUMP, f, attrs, each)
	if attrs != nil && errors.Is(err, nlmsg.ErrInterrupted) {
		return nil
	}
	return err
}

// Ask sends a request and calls each with the attributes of every answer.
func (c *Conn) Ask(kind, flags uint16, f program.Family, attrs func(*nlmsg.Writer), each func(nlmsg.Attributes)) error {
	if err := c.request(kind, flags, f, attrs); err != nil {
		return err
	}
	return c.Answers(c.wire.Seq, each)
}

func (c *Conn) request(kind, flags uint16, f program.Family, attrs func(*nlmsg.Writer)) error {
	w := &c.wire
	w.Buf = w.Buf[:0]
	start := w.begin(kind, flags, f)
	if attrs != nil {
		attrs(&w.Writer)
	}
	w.End(start)
	return c.Conn.Send(w.Buf)
}

// DumpElements reads all elements of a set or map.
func (c *Conn) DumpElements(f program.Family, set program.SetID, each func(Found)) error {
	return c.Dump(unix.NFT_MSG_GETSETELEM, f, ofOurSet(set), func(a nlmsg.Attributes) { decodeElements(a, each) })
}

func ofOurSet(set program.SetID) func(*nlmsg.Writer) {
	return func(w *nlmsg.Writer) {
		w.Text(unix.NFTA_SET_ELEM_LIST_TABLE, program.TableName)
		w.Text(unix.NFTA_SET_ELEM_LIST_SET, set.Name())
	}
}

// socketReader reads a set through a socket of its own: the kernel keeps the place of one dump for each socket.
type socketReader struct{ conn *Conn }

func (c *Conn) ReadSet(f program.Family, set program.SetID) (SetReader, error) {
	own, err := Dial(c.netns)
	if err != nil {
		return nil, err
	}
	if err := own.request(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, f, ofOurSet(set)); err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return &socketReader{own}, nil
}

func (l *socketReader) Next(each func(Found)) (more bool, err error) {
	last, _, err := l.conn.Part(l.conn.wire.Seq, func(a nlmsg.Attributes) { decodeElements(a, each) })
	return !last, err
}

func (l *socketReader) Close() error { return l.conn.Close() }

// decodeElements calls each for the elements of an answer. Their bytes are valid until each returns.
func decodeElements(a nlmsg.Attributes, each func(Found)) {
	for e := a.Find(unix.NFTA_SET_ELEM_LIST_ELEMENTS).Nested(); e.Next(); {
		each(decodeElement(e.Nested()))
	}
}

func decodeElement(e nlmsg.Attributes) (found Found) {
	for e.Next() {
		switch e.Kind {
		case unix.NFTA_SET_ELEM_KEY:
			found.Key = decodeValue(e.Nested())
		case elementKeyEnd: // the kernel writes it behind the key
			found.Key = slices.Concat(found.Key, decodeValue(e.Nested()))
		case unix.NFTA_SET_ELEM_DATA:
			found.Data = decodeValue(e.Nested())
		case unix.NFTA_SET_ELEM_FLAGS:
			found.IntervalEnd = e.Uint32()&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_USERDATA:
			found.Comment = readComment(e.Value)
		case unix.NFTA_SET_ELEM_EXPIRATION:
			found.Expires = time.Duration(e.Uint64()) * time.Millisecond
		case unix.NFTA_SET_ELEM_EXPR:
			found.Packets = e.Nested().Find(unix.NFTA_EXPR_DATA).Nested().Find(unix.NFTA_COUNTER_PACKETS).Uint64()
		}
	}
	return found
}

// decodeValue reads a key or data. For a verdict, it returns the name of the chain.
func decodeValue(v nlmsg.Attributes) (value []byte) {
	for v.Next() {
		switch v.Kind {
		case unix.NFTA_DATA_VALUE:
			value = v.Value
		case unix.NFTA_DATA_VERDICT:
			value = bytes.TrimRight(v.Nested().Find(unix.NFTA_VERDICT_CHAIN).Value, "\x00")
		}
	}
	return value
}

// Lookup asks for one element. Found reports whether the key exists. In a set of ranges, it finds the range that has the
// first port of the key. The key may be that of a frontend with one port.
func (c *Conn) Lookup(f program.Family, set program.SetID, key []byte) (e Found, found bool, err error) {
	n, err := c.LookupRow(f, set, [][]byte{key}, func(it Found) { e = it.Clone() })
	return e, n > 0, err
}

// LookupRow asks for several elements with one message. It calls each for the elements, up to the first one that does
// not exist, and returns how many exist. The kernel answers with a message for each element. All answers must fit in
// the receive buffer.
func (c *Conn) LookupRow(f program.Family, set program.SetID, keys [][]byte, each func(Found)) (found int, err error) {
	err = c.Ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_ACK, f, func(w *nlmsg.Writer) {
		wire := &c.wire
		w.Text(unix.NFTA_SET_ELEM_LIST_TABLE, program.TableName)
		w.Text(unix.NFTA_SET_ELEM_LIST_SET, set.Name())
		list := w.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for _, key := range keys {
			item := w.Nest(unix.NFTA_LIST_ELEM)
			wire.key(set.HasPorts() && len(key) > program.FrontendLength(f), key)
			w.Unnest(item)
		}
		w.Unnest(list)
	}, func(a nlmsg.Attributes) {
		decodeElements(a, func(e Found) {
			each(e)
			found++
		})
	})
	if errors.Is(err, unix.ENOENT) {
		return found, nil
	}
	return found, err
}

// Found is an element that the kernel has.
type Found struct {
	Key, Data   []byte
	Comment     string
	IntervalEnd bool
	Packets     uint64        // of its counter
	Expires     time.Duration // from now; 0: never
}

// Number is the data, if that is a number.
func (f *Found) Number() (uint32, bool) { return Number(f.Data) }

// Number reads a key or data that is a number.
func Number(b []byte) (n uint32, ok bool) {
	if len(b) != 4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(b), true
}

// Element is the element without the values of counters and timeouts, with its bytes in an arena.
func (f *Found) Element(d *program.Set, b *program.Builder) program.Element {
	e := program.Element{Offset: b.Mark(), KeyLen: uint8(len(f.Key)), DataLen: uint8(len(f.Data)), Label: f.Comment}
	b.Arena = append(b.Arena, f.Key...)
	if d.LeadsToChains() {
		e.Label, e.DataLen = string(f.Data), 0
	} else {
		b.Arena = append(b.Arena, f.Data...)
	}
	return e
}

func (f *Found) Clone() Found {
	c := *f
	c.Key, c.Data = slices.Clone(f.Key), slices.Clone(f.Data)
	return c
}

// SameValue ignores the padding behind the last component of a concatenation.
func SameValue(a, b []byte) bool {
	return bytes.Equal(bytes.TrimRight(a, "\x00"), bytes.TrimRight(b, "\x00"))
}
