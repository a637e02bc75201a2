package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Reading happens at the start and after an apply whose outcome is unknown, never in a normal pass.

// errInterrupted says that somebody committed to nf_tables between two datagrams of a dump. The kernel goes on by counting
// objects, so some may be missing, and others be there twice.
var errInterrupted = errors.New("nf_tables was changed while it was read")

// steadyTries bounds how often something is read that changes all the time. An attempt takes a fraction of a millisecond; a
// tool that commits a thousand times a second interrupts a good part of them.
const steadyTries = 20

// steadily reads again what was interrupted. Each time, read has to forget what it has read before.
func steadily(what string, read func() error) error {
	for range steadyTries {
		if err := read(); !errors.Is(err, errInterrupted) {
			return err
		}
	}
	return fmt.Errorf("list %s: %w, %d times in a row; try again when others commit less often", what, errInterrupted, steadyTries)
}

// dump asks for all objects of a kind and hands the attributes of each to each. With attributes, which restrict it to our
// table or to a set, the kernel counts only what is in there, and commits to other tables do not matter; without, it returns
// errInterrupted when there were any.
func (c *conn) dump(kind uint16, f Family, attrs func(*wire), each func(*netlink.AttributeDecoder)) error {
	err := c.ask(kind, unix.NLM_F_DUMP, f, attrs, each)
	if attrs != nil && errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// ask sends a request and hands the attributes of each answer to each.
func (c *conn) ask(kind, flags uint16, f Family, attrs func(*wire), each func(*netlink.AttributeDecoder)) error {
	w := &c.request
	w.buf = w.buf[:0]
	start := w.begin(kind, flags, f)
	if attrs != nil {
		attrs(w)
	}
	w.end(start)
	if err := c.sendRaw(w.buf); err != nil {
		return err
	}
	return c.readAnswers(w.seq, each)
}

func (c *conn) readAnswers(seq uint32, each func(*netlink.AttributeDecoder)) error {
	interrupted := false
	for {
		n, err := c.wait()
		if err != nil {
			return fmt.Errorf("read the answer of nf_tables: %w", err)
		}
		for b := c.answers[:n]; len(b) >= messageHeader; {
			length := int(binary.NativeEndian.Uint32(b))
			if length < messageHeader || length > len(b) {
				return errors.New("read the answer of nf_tables: malformed message")
			}
			done, err := readMessage(b[:length], seq, each)
			interrupted = interrupted || flagged(b, seq, unix.NLM_F_DUMP_INTR)
			switch {
			case err != nil:
				return err
			case done:
				c.unread = false
				if interrupted {
					return errInterrupted
				}
				return nil
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// flagged says whether a message belongs to our request and has a flag.
func flagged(m []byte, seq uint32, flag uint16) bool {
	return binary.NativeEndian.Uint32(m[8:]) == seq && binary.NativeEndian.Uint16(m[6:])&flag != 0
}

func readMessage(m []byte, seq uint32, each func(*netlink.AttributeDecoder)) (done bool, err error) {
	if binary.NativeEndian.Uint32(m[8:]) != seq {
		return false, nil
	}
	switch binary.NativeEndian.Uint16(m[4:]) {
	case unix.NLMSG_DONE:
		return true, nil
	case unix.NLMSG_ERROR:
		answer := parseError(m)
		if answer.errno == 0 {
			return true, nil
		}
		return true, answer.error()
	}
	ad, err := netlink.NewAttributeDecoder(m[messageHeader+4:])
	if err != nil {
		return true, fmt.Errorf("read the answer of nf_tables: %w", err)
	}
	ad.ByteOrder = binary.BigEndian
	each(ad)
	return false, nil
}

// dumpElements reads all elements of a map of plain data.
func (c *conn) dumpElements(f Family, set string, each func(key, data []byte, comment string)) error {
	return c.dump(unix.NFT_MSG_GETSETELEM, f, func(w *wire) {
		w.text(unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
		w.text(unix.NFTA_SET_ELEM_LIST_SET, set)
	}, func(ad *netlink.AttributeDecoder) { decodeElements(ad, each) })
}

func decodeElements(ad *netlink.AttributeDecoder, each func(key, data []byte, comment string)) {
	for ad.Next() {
		if ad.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					list.Nested(func(e *netlink.AttributeDecoder) error {
						each(decodeElement(e))
						return nil
					})
				}
				return nil
			})
		}
	}
}

func decodeElement(e *netlink.AttributeDecoder) (key, data []byte, comment string) {
	value := func(into *[]byte) func(*netlink.AttributeDecoder) error {
		return func(v *netlink.AttributeDecoder) error {
			for v.Next() {
				switch v.Type() {
				case unix.NFTA_DATA_VALUE:
					*into = v.Bytes()
				case unix.NFTA_DATA_VERDICT:
					v.Nested(func(v *netlink.AttributeDecoder) error { return verdictChain(v, into) })
				}
			}
			return nil
		}
	}
	for e.Next() {
		switch e.Type() {
		case unix.NFTA_SET_ELEM_KEY:
			e.Nested(value(&key))
		case unix.NFTA_SET_ELEM_DATA:
			e.Nested(value(&data))
		case unix.NFTA_SET_ELEM_USERDATA:
			comment, _ = userdata.GetString(e.Bytes(), userdata.TypeComment)
		}
	}
	return key, data, comment
}

// verdictChain reads where a verdict leads.
func verdictChain(v *netlink.AttributeDecoder, into *[]byte) error {
	for v.Next() {
		if v.Type() == unix.NFTA_VERDICT_CHAIN {
			*into = bytes.TrimRight(v.Bytes(), "\x00")
		}
	}
	return nil
}

// lookup asks for one element: found tells whether the key exists, data what it holds.
func (c *conn) lookup(f Family, set string, key []byte) (data []byte, found bool, err error) {
	n, err := c.lookupRow(f, set, [][]byte{key}, func(d []byte) { data = append([]byte(nil), d...) })
	return data, n > 0, err
}

// lookupRow asks for several elements with one message and hands over what they hold, up to the first one that does not
// exist. It returns how many do. The kernel answers with a message for each, which have to fit in the receive buffer.
func (c *conn) lookupRow(f Family, set string, keys [][]byte, each func(data []byte)) (found int, err error) {
	err = c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_ACK, f, func(w *wire) {
		w.text(unix.NFTA_SET_ELEM_LIST_TABLE, TableName)
		w.text(unix.NFTA_SET_ELEM_LIST_SET, set)
		list := w.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for _, key := range keys {
			item := w.nest(unix.NFTA_LIST_ELEM)
			k := w.nest(unix.NFTA_SET_ELEM_KEY)
			w.bytes(unix.NFTA_DATA_VALUE, key)
			w.unnest(k)
			w.unnest(item)
		}
		w.unnest(list)
	}, func(ad *netlink.AttributeDecoder) {
		decodeElements(ad, func(_, d []byte, _ string) {
			each(d)
			found++
		})
	})
	if errors.Is(err, unix.ENOENT) {
		return found, nil
	}
	return found, err
}
