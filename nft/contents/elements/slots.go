package elements

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// slotting gives slots to the endpoints of a pool. It has memory that is used again for each pool.
type slotting struct {
	bySlot   []uint32 // the endpoint in each slot, as an index
	free     []place
	before   []uint16         // the slots that are there, in the order of the addresses of their endpoints
	tokens   []uint32         // of endpoints
	byNumber []netip.AddrPort // endpoints by their ordinal
	earlier  ledger.Records
	records  ledger.Records
}

// place is a place in the order of slots that has no slot yet.
type place struct {
	endpoint  int // index
	first, at int // the first place of the endpoint, and this one
	slot      int // that it gets
}

const noEndpoint = ^uint32(0)

// update appends the slots of a pool, in their order. before are the ordinals that the tokens in the present slots have.
func (s *slotting) update(
	out ledger.Records, p *port, pl *poolState, to program.Class, endpoints []contents.Endpoint, before []ordinal,
) ledger.Records {
	if out == nil {
		out = s.records[:0]
	}
	set := to.Slots()
	if pl.earlier == nil && pl.class.Slots() != set {
		pl.order = pl.order[:0]
	}
	row, stays := s.read(p, pl, set, before)
	switch {
	case to.Empty():
		s.bySlot, pl.order = s.bySlot[:0], nil
	case to.Hashed():
		// Only the first slot is in the map endpoints. A packet that is in the chain of another class while the class changes finds
		// an endpoint there.
		s.bySlot, pl.order = append(s.bySlot[:0], 0), nil
	case to.Method.Hashes():
		s.bySlot, pl.order = s.bySlot[:0], nil
		for _, i := range hashing.Fill(endpoints) {
			s.bySlot = append(s.bySlot, uint32(i))
		}
	default:
		pl.order = s.reassign(row, set, endpoints, pl.order)
		if stays {
			return s.edit(out, row, pl, set, endpoints)
		}
	}
	return s.append(out, p, pl, set, endpoints)
}

// keep keeps the memory of a list that is no longer needed.
func (s *slotting) keep(records ledger.Records) {
	const most = 1 << 20
	if s.records = records[:0]; cap(records) > most {
		*s = slotting{} // it must not keep large memory in use
	}
}

// read returns the endpoints in the slots of a pool, as the map of endpoints or of addresses has them. It reports whether the
// ledger has them in this form.
func (s *slotting) read(p *port, pl *poolState, set program.SetID, before []ordinal) (row ledger.Row, stays bool) {
	if len(pl.order) == 0 {
		return row, false
	}
	wanted, _ := p.account.Wanted().(ledger.Records)
	row = wanted.Row(set, pl.number)
	at := func(slot int) netip.AddrPort { return pl.earlier[slot] }
	switch {
	case pl.earlier != nil:
	case set == program.StickySlots:
		s.byNumber = slices.Grow(s.byNumber[:0], program.MaxOrdinals)[:program.MaxOrdinals]
		for _, o := range before {
			s.byNumber[o.n] = o.addr
		}
		at = func(slot int) netip.AddrPort {
			return s.byNumber[binary.NativeEndian.Uint32(row.Data(slot))>>program.PoolBits]
		}
	default:
		return row, true
	}
	s.earlier = s.earlier[:0]
	for slot := range pl.order {
		s.earlier = putSlot(s.earlier, pl, set, slot, at(slot))
	}
	pl.earlier = nil
	return s.earlier.Row(set, pl.number), false
}

// putAddress writes an endpoint as in a map of slots. Connections to an endpoint in the map of addresses keep their port.
func putAddress(b *program.Builder, set program.SetID, at netip.AddrPort) {
	if b.Addr(at.Addr()); set != program.Addresses {
		b.Port(at.Port())
	}
}

// reassign gives slots to the wanted endpoints, which are sorted, and repeated for several slots. As few slots as
// possible change: an endpoint that stays keeps its slots, and a new one takes the slot of one that goes. Only if the
// pool shrinks, endpoints from its end move into the gaps. It returns the slots in the order of the endpoints.
func (s *slotting) reassign(row ledger.Row, set program.SetID, want []contents.Endpoint, order []uint16) []uint16 {
	size := slotsOf(program.Random, want)
	s.bySlot = slices.Grow(s.bySlot[:0], size)[:size]
	for i := range s.bySlot {
		s.bySlot[i] = noEndpoint
	}
	s.before = append(s.before[:0], order...)
	if order = order[:0]; cap(order) < size || cap(order) > 2*size+8 {
		order = make([]uint16, 0, size)
	}
	s.free = s.free[:0]
	var memory [20]byte
	old := s.before
	for i := range want {
		b := program.Builder{Arena: memory[:0]} // addresses are in the same order as their bytes in the kernel
		putAddress(&b, set, want[i].Addr)
		first := len(order)
		for range max(want[i].Slots, 1) {
			differs := 1
			for len(old) > 0 {
				if differs = bytes.Compare(row.Data(int(old[0])), b.Arena); differs >= 0 {
					break
				}
				old = old[1:]
			}
			slot := noEndpoint
			if differs == 0 {
				slot, old = uint32(old[0]), old[1:]
			}
			if slot < uint32(size) {
				s.bySlot[slot] = uint32(i)
			} else {
				s.free = append(s.free, place{endpoint: i, first: first, at: len(order)})
			}
			order = append(order, uint16(slot))
		}
	}
	s.fill(order, want)
	return order
}

// fill gives the free slots, the lowest first, to the places that have none.
func (s *slotting) fill(order []uint16, want []contents.Endpoint) {
	slot := 0
	for i, to := range s.free {
		for s.bySlot[slot] != noEndpoint {
			slot++
		}
		s.bySlot[slot], order[to.at], s.free[i].slot = uint32(to.endpoint), uint16(slot), slot
		// If the endpoint loses slots later, it keeps the lowest ones, and these are the last ones to go when the pool shrinks.
		if i+1 == len(s.free) || s.free[i+1].endpoint != to.endpoint {
			slices.Sort(order[to.first : to.first+int(max(want[to.endpoint].Slots, 1))])
		}
	}
}

// append appends the slots of a pool.
func (s *slotting) append(out ledger.Records, p *port, pl *poolState, set program.SetID, endpoints []contents.Endpoint) ledger.Records {
	if set != program.StickySlots {
		for slot, i := range s.bySlot {
			out = putSlot(out, pl, set, slot, endpoints[i].Addr)
		}
		return out
	}
	s.tokens = s.tokens[:0]
	list := p.ordinals.list // sorted like the endpoints, and has each of them
	for i := range endpoints {
		for list[0].addr != endpoints[i].Addr {
			list = list[1:]
		}
		s.tokens = append(s.tokens, p.token(list[0].n, 0))
	}
	for slot, i := range s.bySlot {
		b := slotKey(out, pl, set, slot, 4)
		b.Word(s.tokens[i])
		out = b.Arena
	}
	return out
}

// edit appends the slots of a pool that has some already: only those of new endpoints change.
func (s *slotting) edit(out ledger.Records, row ledger.Row, pl *poolState, set program.SetID, endpoints []contents.Endpoint) ledger.Records {
	start := len(out)
	out = row.Append(out, len(s.before), len(s.bySlot))
	for _, to := range s.free {
		at := start + (len(out)-start)/len(s.bySlot)*to.slot
		putSlot(out[at:at], pl, set, to.slot, endpoints[to.endpoint].Addr)
	}
	return out
}

// slotKey begins the record of a slot. The data follow, so many bytes.
func slotKey(out ledger.Records, pl *poolState, set program.SetID, slot, data int) program.Builder {
	b := program.Builder{Arena: out.AppendHeader(set, 8, data)}
	b.Word(pl.number)
	b.Word(uint32(slot))
	return b
}

// putSlot writes a slot with an endpoint.
func putSlot(out ledger.Records, pl *poolState, set program.SetID, slot int, at netip.AddrPort) ledger.Records {
	size := pl.family.AddrLen()
	if set != program.Addresses {
		size += program.TypePort.Padded()
	}
	b := slotKey(out, pl, set, slot, size)
	putAddress(&b, set, at)
	return b.Arena
}

// slotsOf is how many slots the endpoints of a pool have.
func slotsOf(method program.Method, endpoints []contents.Endpoint) int {
	if method.Hashes() && len(endpoints) > 0 {
		return int(hashing.Size(len(endpoints)))
	}
	n := 0
	for i := range endpoints {
		n += int(max(endpoints[i].Slots, 1))
	}
	return n
}
