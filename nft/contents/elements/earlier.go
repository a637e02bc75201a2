package elements

import (
	"bytes"
	"encoding/binary"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Image is what the kernel has in those maps of a table whose contents refer to numbers: of pools, of classes, of hash
// tables. An engine that starts gives the same numbers and slots to what is there already. So its first transaction is
// small, and the elements keep their counters.
type Image struct {
	Names   map[uint32]string                // the comments of pools, and of frontends with source ranges
	ClassOf map[uint32]uint32                // the number of a pool's class, by the number of the pool
	Classes map[uint32]program.Class         // by number
	Hashed  map[uint32]uint32                // the data of a pool in the map hash-tables
	Rows    map[program.SetID]map[uint32]Row // the slots of pools and hash tables, by number
}

func NewImage() *Image {
	return &Image{
		Names: map[uint32]string{}, ClassOf: map[uint32]uint32{}, Classes: map[uint32]program.Class{}, Hashed: map[uint32]uint32{},
		Rows: map[program.SetID]map[uint32]Row{},
	}
}

// Row is the data in consecutive slots.
type Row struct {
	data []byte
	each int // bytes of one slot
}

func (r Row) Slots() int {
	if r.each == 0 {
		return 0
	}
	return len(r.data) / r.each
}

// At is the data in a slot; nil: there is no such slot. No slot has zeros: they are a gap.
func (r Row) At(slot uint32) []byte {
	if int(slot) >= r.Slots() {
		return nil
	}
	data := r.data[int(slot)*r.each : (int(slot)+1)*r.each]
	if len(bytes.TrimLeft(data, "\x00")) == 0 {
		return nil
	}
	return data
}

// Append adds the next slot.
func (r *Row) Append(data []byte) {
	if r.each == 0 {
		r.each = len(data)
	}
	if len(data) == r.each {
		r.data = append(r.data, data...)
	}
}

// Put sets a slot. The slots before it that are not known are gaps.
func (r *Row) Put(slot uint32, data []byte) {
	r.each = len(data)
	if missing := (int(slot)+1)*r.each - len(r.data); missing > 0 {
		r.data = append(r.data, make([]byte, missing)...)
	}
	copy(r.data[int(slot)*r.each:], data)
}

// EarlierToken is an element of the map of tokens.
type EarlierToken struct {
	token uint32
	addr  netip.AddrPort
	name  string
}

// ReadToken reads an element of the map of tokens.
func ReadToken(f program.Family, key, data []byte, comment string) (t EarlierToken, ok bool) {
	if at, ok := program.EndpointOf(f, data); ok && len(key) == 4 {
		return EarlierToken{binary.NativeEndian.Uint32(key), at, comment}, true
	}
	return t, false
}

// earlierPort is a service port as an earlier process left it in the kernel. Entries of the affinity map refer to its
// number and to the ordinals of its endpoints. The other maps refer to its number, too.
type earlierPort struct {
	family   program.Family
	name     string // the comment of its elements, see Label
	number   uint32
	ordinals ordinals         // only with affinity
	slots    [2]Row           // of the cluster pool and the local pool, as in the kernel
	sets     [2]program.SetID // the maps that have the slots
}

// earlierPorts own the ports of an earlier process that have no successor yet, by name. They are nil if there was no
// table, and after the first Apply.
type earlierPorts map[string]*earlierPort

// readEarlier finds the service ports of an earlier process, by number.
func readEarlier(f program.Family, im *Image, tokens []EarlierToken) map[uint32]*earlierPort {
	ports := map[uint32]*earlierPort{}
	at := func(number uint32) *earlierPort {
		if ports[number] == nil {
			ports[number] = &earlierPort{family: f, number: number}
		}
		return ports[number]
	}
	if im != nil {
		for pool := range im.ClassOf {
			at(pool>>1).readPool(im, pool)
		}
		for number, name := range im.Names { // a port may have source ranges and no pool
			if p := at(number >> 1); p.name == "" {
				p.name = strings.TrimSuffix(name, program.LocalSuffix)
			}
		}
	}
	for _, t := range tokens {
		at(t.token & program.PoolMask >> 1).readToken(t)
	}
	return ports
}

// readPool adds what the image has of a pool. The name of a port is the comment of its cluster pool. A port without
// endpoints elsewhere has only a local pool.
func (p *earlierPort) readPool(im *Image, number uint32) {
	pool := number & program.LocalBit
	switch name := im.Names[number]; {
	case pool == 0:
		p.name = name
	case p.name == "":
		p.name = strings.TrimSuffix(name, program.LocalSuffix)
	}
	p.sets[pool] = im.Classes[im.ClassOf[number]].Slots()
	p.slots[pool] = im.Rows[p.sets[pool]][number]
}

func (p *earlierPort) readToken(t EarlierToken) {
	n := t.token >> program.PoolBits
	p.name = t.name
	p.ordinals.list = append(p.ordinals.list, ordinal{addr: t.addr, n: n})
	p.ordinals.last = max(p.ordinals.last, n)
}

// haveAffinity reports whether an earlier process left service ports with affinity.
func (e earlierPorts) haveAffinity() bool {
	for _, p := range e {
		if len(p.ordinals.list) > 0 {
			return true
		}
	}
	return false
}

// members are the endpoints in the slots of a pool, and the slots in the order of their addresses; nil: they cannot be used.
func (p *earlierPort) members(pool int) (members []netip.AddrPort, order []uint16) {
	byToken := map[uint32]netip.AddrPort{}
	for _, o := range p.ordinals.list {
		byToken[p.number<<1|o.n<<program.PoolBits] = o.addr
	}
	r := p.slots[pool]
	for slot := range uint32(r.Slots()) {
		var addr netip.AddrPort
		switch data := r.At(slot); {
		case p.sets[pool] == program.StickySlots && len(data) == 4:
			addr = byToken[binary.NativeEndian.Uint32(data)]
		case p.sets[pool] == program.Endpoints && len(data) >= p.family.AddrLen()+2, p.sets[pool] == program.Addresses:
			addr, _ = program.EndpointOf(p.family, data)
		}
		if !addr.IsValid() {
			return nil, nil
		}
		members, order = append(members, addr), append(order, uint16(slot))
	}
	slices.SortStableFunc(order, func(a, b uint16) int { return members[a].Compare(members[b]) })
	return members, order
}

// KeepTables has the hash tables of an image leave in pieces that no pool has.
func (c *Contents) KeepTables(im *Image) {
	for _, id := range []program.SetID{program.HashSlots, program.Endpoints} {
		for _, key := range slices.Sorted(maps.Keys(im.Rows[id])) {
			if hashing.IsMark(key) && key&program.PortMask == 0 {
				c.Hash.Keep(key>>program.TableShift, id == program.Endpoints, im.Rows[id][key].endpoints(c.family))
			}
		}
	}
}

// endpoints are those in the slots, up to the first gap.
func (r Row) endpoints(f program.Family) iter.Seq[netip.AddrPort] {
	return func(yield func(netip.AddrPort) bool) {
		for slot := range uint32(r.Slots()) {
			if at, ok := program.EndpointOf(f, r.At(slot)); !ok || !yield(at) {
				return
			}
		}
	}
}
