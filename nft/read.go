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

// dump sends a dump request and hands every object's attributes to each.
func (c *conn) dump(kind uint16, f Family, attrs func(*wire), each func(*netlink.AttributeDecoder)) error {
	w := &c.request
	w.buf = w.buf[:0]
	start := w.begin(kind, unix.NLM_F_DUMP, f)
	if attrs != nil {
		attrs(w)
	}
	w.end(start)
	if err := c.sendRaw(w.buf); err != nil {
		return err
	}
	return c.readDump(w.seq, each)
}

func (c *conn) readDump(seq uint32, each func(*netlink.AttributeDecoder)) error {
	for {
		n, err := c.wait()
		if err != nil {
			return fmt.Errorf("read dump from nf_tables: %w", err)
		}
		for b := c.answers[:n]; len(b) >= messageHeader; {
			length := int(binary.NativeEndian.Uint32(b))
			if length < messageHeader || length > len(b) {
				return errors.New("read dump from nf_tables: malformed message")
			}
			done, err := readMessage(b[:length], seq, each)
			if done || err != nil {
				c.unread = err != nil
				return err
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
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
		return true, fmt.Errorf("read dump from nf_tables: %w", err)
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
	w := &c.request
	w.buf = w.buf[:0]
	start := w.begin(unix.NFT_MSG_GETSETELEM, unix.NLM_F_ACK, f)
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
	w.end(start)
	if err := c.sendRaw(w.buf); err != nil {
		return 0, err
	}
	err = c.readDump(w.seq, func(ad *netlink.AttributeDecoder) {
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
