package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// inheritance is what affinity entries in the kernel refer to: a service port's number and its endpoints' ordinals.
type inheritance struct {
	name     string // as in the comment
	number   uint32
	ordinals []ordinal
	next     uint32
}

// inherit reads the tokens of an earlier process. Only service ports with affinity have tokens, so there are few to read.
// Reading the big maps back would take seconds (a dump is quadratic in the kernel).
func (tb *table) inherit(k kernel) error {
	was, err := k.surveyTable(tb.family)
	if err != nil || !was.table || !was.sameLayout {
		return err
	}
	found := map[uint32]*inheritance{} // by number
	err = k.dumpElements(tb.family, mapStickyEndpoints, func(key, data []byte, comment string) {
		if len(key) == 4 && len(data) >= tb.family.addrLen()+2 {
			tb.inheritToken(found, binary.NativeEndian.Uint32(key), data, comment)
		}
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil // someone has removed the map
	}
	tb.adopt(found)
	return err
}

// adopt keeps what was found until the service ports come that it belongs to.
func (tb *table) adopt(found map[uint32]*inheritance) {
	names := map[string]int{}
	for _, h := range found {
		names[h.name]++
	}
	tb.inherited = map[string]*inheritance{}
	for number, h := range found {
		tb.numbers.next = max(tb.numbers.next, number)
		if names[h.name] > 1 {
			continue // names cut to the length of a comment are alike: nobody can tell whose it is
		}
		slices.SortFunc(h.ordinals, func(a, b ordinal) int { return a.addr.Compare(b.addr) })
		h.ordinals = slices.CompactFunc(h.ordinals, func(a, b ordinal) bool { return a.addr == b.addr })
		tb.inherited[h.name] = h
		tb.numbers.claim(number)
	}
}

func (tb *table) inheritToken(found map[uint32]*inheritance, token uint32, data []byte, name string) {
	number, n := token&poolMask>>1, token>>poolBits
	h := found[number]
	if h == nil {
		h = &inheritance{name: name, number: number}
		found[number] = h
	}
	addr, _ := netip.AddrFromSlice(data[:tb.family.addrLen()])
	port := binary.BigEndian.Uint16(data[tb.family.addrLen():])
	h.ordinals = append(h.ordinals, ordinal{addr: netip.AddrPortFrom(addr, port), n: n})
	h.next = max(h.next, n+1)
}

// disown forgets what no service port has claimed.
func (tb *table) disown() {
	for _, h := range tb.inherited {
		tb.numbers.free(h.number)
	}
	tb.inherited = nil
}

// Inherited says whether the table of an earlier process has a frontend: in the hands of a pool, or of IPVS. It asks the
// kernel for this one, because reading them all is slow. After the first Apply the answer is always no.
func (e *Engine) Inherited(f Family, protocol uint8, addr netip.Addr, port uint16) (bool, error) {
	tb := e.tables[f.index()]
	if tb.inherited == nil {
		return false, nil
	}
	fe := Frontend{Addr: addr, Port: port}
	var b builder
	b.frontend(&fe, protocol)
	sets := setsOf(&fe)
	for _, id := range []setID{sets.pools, sets.ipvs} {
		_, found, err := e.conn.lookup(f, tb.defs[id].name, b.arena)
		if err != nil {
			return false, fmt.Errorf("look up frontend %s port %d in table %s %s: %w", addr, port, f, TableName, err)
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}
