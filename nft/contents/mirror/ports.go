package mirror

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// port is the state of one service port.
type port struct {
	identity
	frontends frontends
	pools     [2]poolState // cluster, local
	localIPs  []netip.Addr // addresses of endpoints on this node, sorted
	answering answering
	ordinals  ordinals      // only with affinity
	changed   uint64        // the latest transaction that changed it
	waitsFor  time.Duration // the timeout that the port is to have when there is room; 0: it has what it asked for
}

// changes notes that a transaction changes the port. It reports whether the transaction did so before.
func (p *port) changes(transaction uint64) (again bool) {
	if p != nil {
		again, p.changed = p.changed == transaction, transaction
	}
	return again
}

// write adds all elements of the port except those of its hash tables, which ports share.
func (p *port) write(w program.Writer) {
	for _, e := range p.frontends.elements(w, &p.identity) {
		w.Insert(e.Set, e.Element)
	}
	p.ordinals.write(w, &p.identity, nil)
	for i := range p.pools {
		pl := &p.pools[i]
		p.writePool(w, pl, 0, pl.classID)
		set := pl.class.Slots()
		for _, m := range pl.members {
			w.Insert(set, p.slotElement(w, pl, m.slot, m.addr(), set))
		}
	}
}

// list adds all elements of the port, and which hash table each pool has, as of the latest transaction.
func (p *port) list(w program.Writer) {
	p.write(w)
	for i := range p.pools {
		p.pools[i].hash.List(w)
	}
}

// writePool changes the class of a pool; 0: none.
func (p *port) writePool(w program.Writer, pl *poolState, from, to uint32) {
	if w.Unread {
		return
	}
	if from != 0 {
		w.Remove(program.Pools, w.Element("", func(b *program.Builder) { b.Word(pl.number) }, nil))
	}
	if to != 0 {
		w.Insert(program.Pools, w.Element(program.PoolLabel(p.name, pl.number), func(b *program.Builder) { b.Word(pl.number) },
			func(b *program.Builder) { b.Word(to<<program.PoolBits | pl.number) }))
	}
}

func (p *port) writeSlots(w program.Writer, pl *poolState, changes []slotChange, id program.SetID) {
	if w.Unread {
		return
	}
	for _, c := range changes {
		if c.from == c.to {
			continue
		}
		if c.from.IsValid() {
			w.Remove(id, p.slotElement(w, pl, c.slot, netip.AddrPort{}, id))
		}
		if c.to.IsValid() {
			w.Insert(id, p.slotElement(w, pl, c.slot, c.to, id))
		}
	}
}

// slotElement is the element of a slot; without an address, only its key.
func (p *port) slotElement(w program.Writer, pl *poolState, slot uint32, addr netip.AddrPort, id program.SetID) program.Element {
	start := w.Mark()
	w.Word(pl.number)
	w.Word(slot)
	e := program.Element{Offset: start, KeyLen: w.Since(start)}
	if !addr.IsValid() {
		return e
	}
	start = w.Mark()
	switch id {
	case program.StickySlots:
		w.Word(p.token(p.ordinals.of(addr), 0))
	case program.Addresses:
		w.Addr(addr.Addr())
	default:
		w.Addr(addr.Addr())
		w.Port(addr.Port())
	}
	e.DataLen = w.Since(start)
	return e
}

// slotWriter changes the slots of pools.
type slotWriter struct {
	spare []member // memory of an earlier pool, to be used again
}

// update gives the slots of a pool to the wanted endpoints.
func (s *slotWriter) update(w program.Writer, p *port, pl *poolState, to program.Class, endpoints []contents.Endpoint) {
	from, set := pl.class.Slots(), to.Slots()
	if from != set && !pl.class.Empty() {
		_, changes := reassign(pl.members, nil)
		p.writeSlots(w, pl, changes, from)
		pl.members = nil
	}
	if pl.earlier != nil {
		pl.members, pl.earlier = pl.earlier, nil
	}
	members, changes := s.assignment(to, endpoints).apply(pl.members)
	p.writeSlots(w, pl, changes, set)
	if cap(pl.members) > cap(s.spare) {
		s.spare = pl.members
	}
	pl.members = members
}

func (s *slotWriter) assignment(c program.Class, endpoints []contents.Endpoint) assignment {
	var spare []member
	if n := len(endpoints); n >= manyMembers && cap(s.spare) < 2*n {
		spare, s.spare = s.spare, nil
	}
	return newAssignment(c, endpoints, spare)
}

// updateFrontends changes the port's frontends and source ranges to the wanted ones.
func (p *port) updateFrontends(w program.Writer, want frontends) {
	if !w.Unread {
		before := p.identity
		before.name = cmp.Or(p.was, p.name)
		old := p.frontends.elements(w, &before)
		w.Diff(old, want.elements(w, &p.identity))
	}
	p.frontends = want
}
