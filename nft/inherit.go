package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// inheritedPort is a service port with session affinity, as an earlier process left it in the kernel. Entries of the
// affinity map refer to its number and to the ordinals of its endpoints.
type inheritedPort struct {
	name     string // the comment of its elements: possibly truncated
	number   uint32
	ordinals []ordinal
	next     uint32 // the ordinal after the highest one
}

// inherit reads the tokens of an earlier process. Only service ports with affinity have tokens, so there are few to
// read. Reading the big maps back would take seconds, because a dump takes quadratic time in the kernel.
func (tb *table) inherit(k kernel) error {
	found, err := k.surveyTable(tb.family)
	if err != nil || !found.table || !found.sameLayout {
		return err
	}
	ports := map[uint32]*inheritedPort{} // by number
	err = k.dumpElements(tb.family, mapStickyEndpoints, func(e foundElement) {
		if len(e.key) == 4 && len(e.data) >= tb.family.addrLen()+2 {
			tb.inheritToken(ports, binary.NativeEndian.Uint32(e.key), e.data, e.comment)
		}
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil // another program has deleted the map
	}
	tb.keepInherited(ports)
	return err
}

// inheritToken adds one token to the port that it belongs to.
func (tb *table) inheritToken(ports map[uint32]*inheritedPort, token uint32, data []byte, name string) {
	number, n := token&poolMask>>1, token>>poolBits
	p := ports[number]
	if p == nil {
		p = &inheritedPort{name: name, number: number}
		ports[number] = p
	}
	addr, _ := netip.AddrFromSlice(data[:tb.family.addrLen()])
	port := binary.BigEndian.Uint16(data[tb.family.addrLen():])
	p.ordinals = append(p.ordinals, ordinal{addr: netip.AddrPortFrom(addr, port), n: n})
	p.next = max(p.next, n+1)
}

// keepInherited keeps ports until Set gets their successors, which take over the numbers.
func (tb *table) keepInherited(ports map[uint32]*inheritedPort) {
	names := map[string]int{}
	for _, p := range ports {
		names[p.name]++
	}
	tb.inherited = map[string]*inheritedPort{}
	for number, p := range ports {
		tb.numbers.next = max(tb.numbers.next, number)
		if names[p.name] > 1 {
			continue // several truncated names are equal: the tokens could belong to any of these ports
		}
		slices.SortFunc(p.ordinals, func(a, b ordinal) int { return a.addr.Compare(b.addr) })
		p.ordinals = slices.CompactFunc(p.ordinals, func(a, b ordinal) bool { return a.addr == b.addr })
		tb.inherited[p.name] = p
		tb.numbers.claim(number)
	}
}

// forgetInherited frees the numbers of inherited ports that have no successor.
func (tb *table) forgetInherited() {
	for _, p := range tb.inherited {
		tb.numbers.free(p.number)
	}
	tb.inherited = nil
}

// Inherited reports whether an earlier process served a frontend, with a pool or with IPVS. It asks the kernel for this
// one frontend, because a dump of all of them is slow. After the first Apply the answer is always false.
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
