package elements

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// slotted is an endpoint and its slot.
type slotted struct {
	addr netip.AddrPort
	slot uint32
}

// slotting gives slots to the endpoints of a pool. It has memory that is used again for each pool.
type slotting struct {
	bySlot   []uint32 // the endpoint in each slot, as an index
	free     []uint32
	present  []slotted
	byNumber []netip.AddrPort // endpoints by their ordinal
	records  ledger.Records
}

const noEndpoint = ^uint32(0)

// update appends the slots of a pool, in their order. before are the ordinals that the tokens in the present slots have.
func (s *slotting) update(
	out ledger.Records, p *port, pl *poolState, to program.Class, endpoints []contents.Endpoint, before []ordinal,
) ledger.Records {
	if out == nil {
		out = s.records[:0]
	}
	old := pl.earlier
	if pl.earlier = nil; old == nil && pl.class.Slots() == to.Slots() {
		old = s.presentIn(p, pl, before)
	}
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
		pl.order = s.reassign(old, endpoints, pl.order)
	}
	return s.append(out, p, pl, to.Slots(), endpoints)
}

// keep keeps the memory of a list that is no longer needed.
func (s *slotting) keep(records ledger.Records) {
	const most = 1 << 20
	if s.records = records[:0]; cap(records) > most {
		*s = slotting{} // it must not keep large memory in use
	}
}

// presentIn returns the endpoints in the slots of a pool, in the order of their addresses.
func (s *slotting) presentIn(p *port, pl *poolState, before []ordinal) []slotted {
	if len(pl.order) == 0 {
		return nil
	}
	set := pl.class.Slots()
	if set == program.StickySlots {
		s.byNumber = slices.Grow(s.byNumber[:0], program.MaxOrdinals)[:program.MaxOrdinals]
		for _, o := range before {
			s.byNumber[o.n] = o.addr
		}
	}
	wanted, _ := p.account.Wanted().(ledger.Records)
	row := wanted.Row(set, pl.number)
	s.present = s.present[:0]
	for _, slot := range pl.order {
		data := row.Data(int(slot))
		one := slotted{slot: uint32(slot)}
		if set == program.StickySlots {
			one.addr = s.byNumber[binary.NativeEndian.Uint32(data)>>program.PoolBits]
		} else {
			one.addr, _ = program.EndpointOf(pl.family, data)
		}
		s.present = append(s.present, one)
	}
	return s.present
}

// reassign gives slots to the wanted endpoints, which are sorted, and repeated for several slots. As few slots as
// possible change: an endpoint that stays keeps its slots, and a new one takes the slot of one that goes. Only if the
// pool shrinks, endpoints from its end move into the gaps. It returns the slots in the order of the endpoints.
func (s *slotting) reassign(old []slotted, want []contents.Endpoint, memory []uint16) []uint16 {
	size := slotsOf(program.Random, want)
	s.bySlot = slices.Grow(s.bySlot[:0], size)[:size]
	for i := range s.bySlot {
		s.bySlot[i] = noEndpoint
	}
	order := memory[:0]
	if cap(order) < size || cap(order) > 2*size+8 {
		order = make([]uint16, 0, size)
	}
	s.free = s.free[:0]
	for i := range want {
		for range max(want[i].Slots, 1) {
			for len(old) > 0 && old[0].addr.Compare(want[i].Addr) < 0 {
				old = old[1:]
			}
			slot := noEndpoint
			if len(old) > 0 && old[0].addr == want[i].Addr {
				slot, old = old[0].slot, old[1:]
			}
			if slot < uint32(size) {
				s.bySlot[slot] = uint32(i)
			} else {
				s.free = append(s.free, uint32(len(order)))
			}
			order = append(order, uint16(slot))
		}
	}
	s.fill(order, want)
	return order
}

// fill gives the free slots, the lowest first, to the endpoints that have none.
func (s *slotting) fill(order []uint16, want []contents.Endpoint) {
	if len(s.free) == 0 {
		return
	}
	slot, place, next := 0, 0, 0
	for i := range want {
		first, fresh := place, false
		for range max(want[i].Slots, 1) {
			if next < len(s.free) && s.free[next] == uint32(place) {
				for s.bySlot[slot] != noEndpoint {
					slot++
				}
				s.bySlot[slot], order[place] = uint32(i), uint16(slot)
				next, fresh = next+1, true
			}
			place++
		}
		// If the endpoint loses slots later, it keeps the lowest ones, and these are the last ones to go when the pool shrinks.
		if fresh {
			slices.Sort(order[first:place])
		}
	}
}

// append appends the slots of a pool.
func (s *slotting) append(out ledger.Records, p *port, pl *poolState, set program.SetID, endpoints []contents.Endpoint) ledger.Records {
	tokens := s.free[:0]
	if set == program.StickySlots {
		list := p.ordinals.list // sorted like the endpoints, and has each of them
		for i := range endpoints {
			for list[0].addr != endpoints[i].Addr {
				list = list[1:]
			}
			tokens = append(tokens, p.token(list[0].n, 0))
		}
	}
	size := map[program.SetID]int{
		program.StickySlots: 4, program.Addresses: pl.family.AddrLen(), program.Endpoints: pl.family.AddrLen() + program.TypePort.Padded(),
	}[set]
	b := program.Builder{Arena: out}
	for slot, i := range s.bySlot {
		b.Arena = ledger.Records(b.Arena).AppendHeader(set, 8, size)
		b.Word(pl.number)
		b.Word(uint32(slot))
		switch set {
		case program.StickySlots:
			b.Word(tokens[i])
		case program.Addresses:
			b.Addr(endpoints[i].Addr.Addr())
		default:
			b.Addr(endpoints[i].Addr.Addr())
			b.Port(endpoints[i].Addr.Port())
		}
	}
	s.free = tokens
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
