package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// inheritance is what affinity entries in the kernel refer to: a service port's number and its endpoints' ordinals.
type inheritance struct {
	number   uint32
	ordinals []ordinal
	next     uint32
}

// inherit reads the tokens of an earlier process. Only service ports with affinity have tokens; reading them costs
// nothing to speak of, while reading the big maps back would take seconds (a dump is quadratic in the kernel).
func (tb *table) inherit(c *conn) error {
	tb.inherited = map[string]inheritance{}
	err := c.dumpElements(tb.family, mapStickyEndpoints, func(key, data []byte, comment string) {
		if len(key) != 4 || len(data) < tb.family.addrLen()+2 {
			return
		}
		tb.inheritToken(binary.NativeEndian.Uint32(key), data, comment)
	})
	for name, h := range tb.inherited {
		slices.SortFunc(h.ordinals, func(a, b ordinal) int { return a.addr.Compare(b.addr) })
		h.ordinals = slices.CompactFunc(h.ordinals, func(a, b ordinal) bool { return a.addr == b.addr })
		tb.inherited[name] = h
		tb.numbers.claim(h.number)
		tb.numbers.next = max(tb.numbers.next, h.number)
	}
	return err
}

func (tb *table) inheritToken(token uint32, data []byte, name string) {
	h := tb.inherited[name]
	n := token >> poolBits
	addr, _ := netip.AddrFromSlice(data[:tb.family.addrLen()])
	port := binary.BigEndian.Uint16(data[tb.family.addrLen():])
	h.number = token & poolMask >> 1
	h.ordinals = append(h.ordinals, ordinal{addr: netip.AddrPortFrom(addr, port), n: n})
	h.next = max(h.next, n+1)
	tb.inherited[name] = h
}

// disown forgets what no service port has claimed.
func (tb *table) disown() {
	for _, h := range tb.inherited {
		tb.numbers.free(h.number)
	}
	tb.inherited = nil
}

// survey reads what exists of our table, without elements.
func (tb *table) survey(c *conn) (existing, error) {
	var was existing
	err := c.dump(unix.NFT_MSG_GETTABLE, tb.family, nil, func(ad *netlink.AttributeDecoder) {
		name, comment := "", ""
		for ad.Next() {
			switch ad.Type() {
			case unix.NFTA_TABLE_NAME:
				name = ad.String()
			case tableUserData:
				comment = tableComment(ad.Bytes())
			}
		}
		if name == TableName {
			was.table, was.sameLayout = true, comment == layoutComment
		}
	})
	if err != nil || !was.table {
		return was, err
	}
	was.chains, err = c.names(unix.NFT_MSG_GETCHAIN, tb.family, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, nil)
	if err != nil {
		return was, err
	}
	anonymous := uint32(unix.NFT_SET_ANONYMOUS)
	was.sets, err = c.names(unix.NFT_MSG_GETSET, tb.family, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, &anonymous)
	return was, err
}
