package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// inheritedPort is a service port as an earlier process left it in the kernel. Entries of the affinity map refer to its
// number and to the ordinals of its endpoints. The other maps refer to its number, too.
type inheritedPort struct {
	name     string // the comment of its elements, see Label
	number   uint32
	ordinals []ordinal // only with affinity
	next     uint32    // the ordinal after the highest one
	slots    [2]row    // of the cluster pool and the local pool, as in the kernel
	sticky   [2]bool   // the slots have tokens
}

// inherit reads what an earlier process left.
func (tb *table) inherit(k kernel) error {
	found, err := k.surveyTable(tb.family)
	if err != nil || !found.table || !found.sameLayout {
		return err
	}
	ports := map[uint32]*inheritedPort{} // by number
	if tb.image, err = tb.readImage(k); err != nil {
		return err
	}
	if tb.image != nil {
		tb.inheritPools(ports)
		tb.classes.prefer(tb.image.classes)
		tb.hash.prefer(tb.image.hashed)
	}
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

// inheritPools adds what the image has of each service port. The name of a port is the comment of its cluster pool. A
// port without endpoints elsewhere has only a local pool.
func (tb *table) inheritPools(ports map[uint32]*inheritedPort) {
	im := tb.image
	for number, id := range im.classOf {
		pool := number & localBit
		p := ports[number>>1]
		if p == nil {
			p = &inheritedPort{number: number >> 1}
			ports[number>>1] = p
		}
		switch name := im.names[number]; {
		case pool == 0:
			p.name = name
		case p.name == "":
			p.name = strings.TrimSuffix(name, localSuffix)
		}
		p.sticky[pool] = im.classes[id].affinity > 0
		set := idEndpoints
		if p.sticky[pool] {
			set = idStickySlots
		}
		p.slots[pool] = im.rows[set][number]
	}
}

// inheritToken adds one token to the port that it belongs to.
func (tb *table) inheritToken(ports map[uint32]*inheritedPort, token uint32, data []byte, name string) {
	number, n := token&poolMask>>1, token>>poolBits
	p := ports[number]
	if p == nil {
		p = &inheritedPort{number: number}
		ports[number] = p
	}
	p.name = name
	p.ordinals = append(p.ordinals, ordinal{addr: tb.readEndpoint(data), n: n})
	p.next = max(p.next, n+1)
}

// readEndpoint reads an endpoint from the data of an element. They are long enough.
func (tb *table) readEndpoint(data []byte) netip.AddrPort {
	n := tb.family.addrLen()
	addr, _ := netip.AddrFromSlice(data[:n])
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(data[n:]))
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
			continue // an earlier version wrote equal comments for long names: the elements could belong to any of these ports
		}
		slices.SortFunc(p.ordinals, func(a, b ordinal) int { return a.addr.Compare(b.addr) })
		p.ordinals = slices.CompactFunc(p.ordinals, func(a, b ordinal) bool { return a.addr == b.addr })
		tb.inherited[p.name] = p
		tb.numbers.claim(number)
	}
}

// inheritsAffinity reports whether an earlier process left service ports with affinity.
func (tb *table) inheritsAffinity() bool {
	for _, p := range tb.inherited {
		if len(p.ordinals) > 0 {
			return true
		}
	}
	return false
}

// take hands an inherited port to its successor.
func (tb *table) takeInherited(p *port) bool {
	earlier := tb.inherited[Label(p.name)]
	if earlier == nil {
		return false
	}
	delete(tb.inherited, earlier.name)
	p.number, p.ordinals, p.nextOrdinal = earlier.number, earlier.ordinals, earlier.next
	for i := range p.pools {
		p.pools[i].earlier = tb.earlierMembers(earlier, i)
	}
	return true
}

// earlierMembers are the endpoints in the slots of an inherited pool; nil: the slots cannot be used.
func (tb *table) earlierMembers(p *inheritedPort, pool int) []member {
	byToken := map[uint32]netip.AddrPort{}
	for _, o := range p.ordinals {
		byToken[p.number<<1|o.n<<poolBits] = o.addr
	}
	r := p.slots[pool]
	var members []member
	for slot := range uint32(r.slots()) {
		var addr netip.AddrPort
		switch data := r.at(slot); {
		case p.sticky[pool] && len(data) == 4:
			addr = byToken[binary.NativeEndian.Uint32(data)]
		case !p.sticky[pool] && len(data) >= tb.family.addrLen()+2:
			addr = tb.readEndpoint(data)
		}
		if !addr.IsValid() {
			return nil
		}
		members = append(members, newMember(addr, slot))
	}
	slices.SortFunc(members, compareMembers)
	return members
}

// forgetInherited frees the numbers of inherited ports that have no successor.
func (tb *table) forgetInherited() {
	for _, p := range tb.inherited {
		tb.numbers.free(p.number)
	}
	tb.inherited, tb.image = nil, nil
	tb.classes.prefer(nil)
	tb.hash.prefer(nil)
}

// Inherited reports whether an earlier process served a frontend, with a pool or with IPVS. An address and port may also be
// those of a node port. Inherited asks the kernel for this one frontend, because a dump of all of them is slow. After the
// first Apply the answer is always false.
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
	if !addr.IsValid() {
		return false, nil
	}
	_, isNodes, err := e.conn.lookup(f, setNodePortAddresses, addr.AsSlice())
	if err != nil {
		return false, fmt.Errorf("look up node-port address %s in table %s %s: %w", addr, f, TableName, err)
	}
	if !isNodes {
		return false, nil
	}
	return e.Inherited(f, protocol, netip.Addr{}, port)
}
