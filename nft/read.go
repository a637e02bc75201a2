package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// The engine reads from the kernel when it starts, before it writes whole tables, after an Apply whose outcome is
// unknown, and when it is asked whether the tables are intact. A normal pass reads nothing.

// errInterrupted means that nf_tables changed between two datagrams of a dump. The kernel finds its place again by
// counting objects, so the dump may lack some objects and have others twice.
var errInterrupted = errors.New("nf_tables was changed while it was read")

// dumpAttempts is how often a dump is attempted if nf_tables changes all the time. An attempt takes a fraction of a
// millisecond. A tool that changes tables a thousand times a second interrupts many of them.
const dumpAttempts = 20

// retryInterrupted calls read again while it is interrupted. Each time, read must forget what it read before.
func retryInterrupted(what string, read func() error) error {
	for range dumpAttempts {
		if err := read(); !errors.Is(err, errInterrupted) {
			return err
		}
	}
	return fmt.Errorf("list %s: %w, %d times in a row; other programs change tables too often",
		what, errInterrupted, dumpAttempts)
}

// dump asks for all objects of a kind and calls each with the attributes of every object. Attributes of the request
// restrict the dump to our table or to a set; then the kernel counts only objects in there, and changes of other tables
// do not matter. Without such attributes, dump returns errInterrupted if any table changed.
func (c *conn) dump(kind uint16, f Family, attrs func(*wire), each func(nlmsg.Attributes)) error {
	err := c.ask(kind, unix.NLM_F_DUMP, f, attrs, each)
	if attrs != nil && errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// ask sends a request and calls each with the attributes of every answer.
func (c *conn) ask(kind, flags uint16, f Family, attrs func(*wire), each func(nlmsg.Attributes)) error {
	if err := c.request(kind, flags, f, attrs); err != nil {
		return err
	}
	return c.readAnswers(c.wire.Seq, each)
}

func (c *conn) request(kind, flags uint16, f Family, attrs func(*wire)) error {
	w := &c.wire
	w.Buf = w.Buf[:0]
	start := w.begin(kind, flags, f)
	if attrs != nil {
		attrs(w)
	}
	w.End(start)
	return c.sendRaw(w.Buf)
}

func (c *conn) readAnswers(seq uint32, each func(nlmsg.Attributes)) error {
	for interrupted := false; ; {
		last, changed, err := c.readDatagram(seq, each)
		interrupted = interrupted || changed
		switch {
		case err != nil:
			return err
		case last && interrupted:
			return errInterrupted
		case last:
			return nil
		}
	}
}

// readDatagram reads the next answers to a request. It reports whether the last one was among them, and whether nf_tables
// changed since the one before.
func (c *conn) readDatagram(seq uint32, each func(nlmsg.Attributes)) (last, changed bool, err error) {
	n, err := c.wait()
	if err != nil {
		return false, false, fmt.Errorf("read the answer of nf_tables: %w", err)
	}
	m := nlmsg.NewMessages(c.answers[:n])
	for m.Next() {
		if m.Seq != seq {
			continue // the answer to an earlier request
		}
		changed = changed || m.Flags&unix.NLM_F_DUMP_INTR != 0
		ack, isAck := m.Ack()
		switch {
		case !isAck:
			each(m.Attributes())
			continue
		case ack.Errno != 0:
			return true, changed, ack.Err()
		}
		c.unread = false
		return true, changed, nil
	}
	if err := m.Err(); err != nil {
		return false, changed, fmt.Errorf("read the answer of nf_tables: %w", err)
	}
	return false, changed, nil
}

// dumpElements reads all elements of a set or map.
func (c *conn) dumpElements(f Family, set string, each func(foundElement)) error {
	return c.dump(unix.NFT_MSG_GETSETELEM, f, ofOurSet(set), func(a nlmsg.Attributes) { decodeElements(a, each) })
}

func ofOurSet(set string) func(*wire) {
	return func(w *wire) {
		w.Text(unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
		w.Text(unix.NFTA_SET_ELEM_LIST_SET, set)
	}
}

// socketReader reads a set through a socket of its own: the kernel keeps the place of one dump for each socket.
type socketReader struct{ conn *conn }

func (c *conn) readSet(f Family, set string) (setReader, error) {
	own, err := dial(c.netns)
	if err != nil {
		return nil, err
	}
	if err := own.request(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, f, ofOurSet(set)); err != nil {
		return nil, errors.Join(err, own.close())
	}
	return &socketReader{own}, nil
}

func (l *socketReader) next(each func(foundElement)) (more bool, err error) {
	last, _, err := l.conn.readDatagram(l.conn.wire.Seq, func(a nlmsg.Attributes) { decodeElements(a, each) })
	return !last, err
}

func (l *socketReader) close() error { return l.conn.close() }

// decodeElements calls each for the elements of an answer. Their bytes are valid until each returns.
func decodeElements(a nlmsg.Attributes, each func(foundElement)) {
	for a.Next() {
		if a.Kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			continue
		}
		for e := a.Nested(); e.Next(); {
			each(decodeElement(e.Nested()))
		}
	}
}

func decodeElement(e nlmsg.Attributes) (found foundElement) {
	for e.Next() {
		switch e.Kind {
		case unix.NFTA_SET_ELEM_KEY:
			found.key = decodeValue(e.Nested())
		case unix.NFTA_SET_ELEM_DATA:
			found.data = decodeValue(e.Nested())
		case unix.NFTA_SET_ELEM_FLAGS:
			found.intervalEnd = e.Uint32()&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_USERDATA:
			found.comment = readComment(e.Value)
		case unix.NFTA_SET_ELEM_EXPIRATION:
			found.expires = time.Duration(number64(e.Value)) * time.Millisecond
		case unix.NFTA_SET_ELEM_EXPR:
			found.packets = decodeCounter(e.Nested())
		}
	}
	return found
}

// decodeCounter reads the packets of an element's counter.
func decodeCounter(e nlmsg.Attributes) (packets uint64) {
	for e.Next() {
		if e.Kind != unix.NFTA_EXPR_DATA {
			continue
		}
		for counter := e.Nested(); counter.Next(); {
			if counter.Kind == unix.NFTA_COUNTER_PACKETS {
				packets = number64(counter.Value)
			}
		}
	}
	return packets
}

// number64 is a value that is a number of 64 bits in network byte order; 0 when it has another length.
func number64(value []byte) uint64 {
	if len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

// decodeValue reads a key or data. For a verdict, it returns the name of the chain.
func decodeValue(v nlmsg.Attributes) (value []byte) {
	for v.Next() {
		switch v.Kind {
		case unix.NFTA_DATA_VALUE:
			value = v.Value
		case unix.NFTA_DATA_VERDICT:
			for verdict := v.Nested(); verdict.Next(); {
				if verdict.Kind == unix.NFTA_VERDICT_CHAIN {
					value = bytes.TrimRight(verdict.Value, "\x00")
				}
			}
		}
	}
	return value
}

// lookup asks for one element. Found reports whether the key exists.
func (c *conn) lookup(f Family, set string, key []byte) (e foundElement, found bool, err error) {
	n, err := c.lookupRow(f, set, [][]byte{key}, func(it foundElement) { e = it.clone() })
	return e, n > 0, err
}

// lookupRow asks for several elements with one message. It calls each for the elements, up to the first one that does
// not exist, and returns how many exist. The kernel answers with a message for each element. All answers must fit in
// the receive buffer.
func (c *conn) lookupRow(f Family, set string, keys [][]byte, each func(foundElement)) (found int, err error) {
	err = c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_ACK, f, func(w *wire) {
		w.Text(unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
		w.Text(unix.NFTA_SET_ELEM_LIST_SET, set)
		list := w.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for _, key := range keys {
			item := w.Nest(unix.NFTA_LIST_ELEM)
			k := w.Nest(unix.NFTA_SET_ELEM_KEY)
			w.Bytes(unix.NFTA_DATA_VALUE, key)
			w.Unnest(k)
			w.Unnest(item)
		}
		w.Unnest(list)
	}, func(a nlmsg.Attributes) {
		decodeElements(a, func(e foundElement) {
			each(e)
			found++
		})
	})
	if errors.Is(err, unix.ENOENT) {
		return found, nil
	}
	return found, err
}
