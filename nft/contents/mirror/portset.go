package mirror

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/program"
)

// ServicePorts are those of a table, with their numbers.
type ServicePorts struct {
	byName  map[string]*port
	numbers numbering
	waiting waiting
	earlier earlierPorts
}

// get finds the state of a port, or makes a new one. A port without a number gets one, if one is free. A new port gets the
// number and the slots that an earlier process gave it.
func (s *ServicePorts) get(name string, protocol uint8) *port {
	p := s.byName[name]
	if p == nil {
		p = &port{identity: identity{name: name, protocol: protocol}}
		s.byName[name] = p
	}
	if p.number == 0 {
		if !s.inherit(p) {
			p.number = s.numbers.take()
		}
		p.pools[0].number, p.pools[1].number = p.pool(0), p.pool(1)
	}
	return p
}

// rename gives a port another name, unless there is a port of that name. All its elements have the name.
func (s *ServicePorts) rename(former, name string) {
	p := s.byName[former]
	if p == nil || s.byName[name] != nil {
		return
	}
	s.stopWaiting(p)
	delete(s.byName, former)
	p.was, p.name, p.waitsFor = former, name, 0
	s.byName[name] = p
}

func (s *ServicePorts) drop(p *port) {
	s.numbers.free(p.number)
	s.stopWaiting(p)
	delete(s.byName, p.name)
}

// Change makes a change of a port in a transaction. It reports whether the transaction has changed the port before.
func (s *ServicePorts) Change(name string, transaction uint64, change func()) (again bool) {
	old := s.byName[name]
	change()
	now := s.byName[name]
	return old.changes(transaction) || now != old && now.changes(transaction)
}

// Inherit reports whether an earlier process may have left ports that have no successor yet.
func (s *ServicePorts) Inherit() bool { return s.earlier != nil }

// Names are those of all ports, in no order.
func (s *ServicePorts) Names() []string { return slices.Collect(maps.Keys(s.byName)) }

// sorted are all ports, in order of their numbers.
func (s *ServicePorts) sorted() []*port {
	return slices.SortedFunc(maps.Values(s.byName), func(a, b *port) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.name, b.name))
	})
}

// takeWaiting returns the names of ports for which there is room, sorted. They no longer wait.
func (s *ServicePorts) takeWaiting(timeouts int) []string {
	names := s.waiting.take(timeouts, s.numbers.room())
	for _, name := range names {
		s.byName[name].waitsFor = 0
	}
	return names
}

// keepEarlier keeps ports until their successors come, which take over the numbers.
func (s *ServicePorts) keepEarlier(ports map[uint32]*earlierPort) {
	names := map[string]int{}
	for _, p := range ports {
		names[p.name]++
	}
	s.earlier = earlierPorts{}
	for number, p := range ports {
		s.numbers.next = max(s.numbers.next, number)
		if names[p.name] > 1 {
			continue // an earlier version wrote equal comments for long names: the elements could belong to any of these ports
		}
		list := p.ordinals.list
		slices.SortFunc(list, func(a, b ordinal) int { return a.addr.Compare(b.addr) })
		p.ordinals.list = slices.CompactFunc(list, func(a, b ordinal) bool { return a.addr == b.addr })
		s.earlier[p.name] = p
		s.numbers.claim(number)
	}
}

// inherit gives a port what the earlier port of the same name had, if there is one.
func (s *ServicePorts) inherit(p *port) bool {
	earlier := s.earlier[program.Label(p.name)]
	if earlier == nil {
		return false
	}
	delete(s.earlier, earlier.name)
	p.number, p.ordinals = earlier.number, earlier.ordinals
	for i := range p.pools {
		p.pools[i].earlier = earlier.members(i)
	}
	return true
}

// forgetEarlier frees the numbers of earlier ports that have no successor.
func (s *ServicePorts) forgetEarlier() {
	for _, p := range s.earlier {
		s.numbers.free(p.number)
	}
	s.earlier = nil
}

// List lists the elements of some service ports.
func (s *ServicePorts) List(w program.Writer, names []string) {
	for _, name := range names {
		if p := s.byName[name]; p != nil { // otherwise it went since
			p.list(w)
		}
	}
}

// versionOf is another number when one of these service ports has changed.
func (s *ServicePorts) versionOf(names []string) (v uint64) {
	for _, name := range names {
		v *= 31
		if p := s.byName[name]; p != nil {
			v += p.changed + 1
		}
	}
	return v
}

// listOwners lists the ports that own one of the keys.
func (s *ServicePorts) listOwners(w program.Writer, keys KeysOf) {
	o := newOwners(w.Family, keys)
	for _, p := range s.byName {
		if o.own(p) {
			p.list(w)
		}
	}
}

// KeysOf are keys of elements, by set.
type KeysOf map[program.SetID][][]byte

// owners finds the service ports that own some elements.
type owners struct {
	numbers   map[uint32]bool // of service ports; a key may also name one by chance
	frontends map[string]bool // keys
	key       program.Builder
}

func newOwners(f program.Family, keys KeysOf) *owners {
	o, defs := &owners{numbers: map[uint32]bool{}, frontends: map[string]bool{}}, program.Program{Family: f}.Sets()
	for id, list := range keys {
		for _, key := range list {
			if defs[id].Key[0].Name != program.TypeClassID.Name {
				o.frontends[string(key)] = true
			} else if len(key) >= 4 {
				o.numbers[binary.NativeEndian.Uint32(key)&program.PoolMask>>1] = true
			}
		}
	}
	return o
}

func (o *owners) own(p *port) bool {
	if o.numbers[p.number] {
		return true
	}
	if len(o.frontends) == 0 {
		return false
	}
	for _, fe := range p.frontends.list {
		o.key.Arena = o.key.Arena[:0]
		o.key.Frontend(fe.Addr, fe.Port, fe.EndPort, p.protocol)
		if o.frontends[string(o.key.Arena)] {
			return true
		}
	}
	return false
}

// OwnerOf finds the service port that has an element. It builds the elements of one port after the other, the latest
// ports first: a refusal is rare, and an index would take memory all the time.
func (s *ServicePorts) OwnerOf(f program.Family, set program.SetID, key []byte) (contents.PortID, bool) {
	latest := func(a, b *port) int { return cmp.Compare(b.number, a.number) }
	for _, p := range slices.SortedFunc(maps.Values(s.byName), latest) {
		w := program.NewWriter(f)
		p.write(w)
		for _, e := range w.Added(set) {
			if bytes.Equal(e.Key(w.Arena), key) {
				return contents.PortID{Family: f, Name: p.name}, true
			}
		}
	}
	return contents.PortID{}, false
}

// hashedPools are the pools of service ports that have or had a hash table.
func hashedPools(ports []*port) (list []*hashing.Pool) {
	for _, p := range ports {
		for i := range p.pools {
			if h := p.pools[i].hash; h != nil {
				list = append(list, h)
			}
		}
	}
	return list
}

// reserve makes room for the elements of service ports.
func reserve(w program.Writer, ports []*port) {
	frontends, pools, slots := 0, 0, 0
	for _, p := range ports {
		frontends += len(p.frontends.list)
		for i := range p.pools {
			slots += len(p.pools[i].members)
			if p.pools[i].classID != 0 {
				pools++
			}
		}
	}
	w.Reserve(w.Family, program.Services, frontends)
	w.Reserve(w.Family, program.Pools, pools)
	w.Reserve(w.Family, program.Endpoints, slots)
	const perElement = 24 // bytes of the key and data of most
	w.Arena = slices.Grow(w.Arena, perElement*(frontends+pools+slots))
}

// noteWaiting notes what a port waits for.
func (s *ServicePorts) noteWaiting(p *port, want, fits *contents.Port) {
	l := &s.waiting
	var timeout time.Duration
	if fits.Affinity != 0 && fits.Affinity != want.Affinity {
		timeout = want.Affinity
	}
	if p.waitsFor != timeout {
		l.timeouts.remove(p.waitsFor, p.name)
	}
	if p.waitsFor = timeout; timeout != 0 {
		l.timeouts.add(timeout, p.name)
	}
	if p.number == 0 {
		l.numbers.add(p.name, p.name)
	} else {
		l.numbers.remove(p.name, p.name)
	}
}

func (s *ServicePorts) stopWaiting(p *port) {
	s.waiting.numbers.remove(p.name, p.name)
	s.waiting.timeouts.remove(p.waitsFor, p.name)
}

// numbering assigns numbers to service ports. A freed number is used again as late as possible, because the kernel may
// still have affinity entries of the port that had it.
type numbering struct {
	used map[uint32]struct{}
	next uint32
}

// take returns a free number; 0: there is none.
func (n *numbering) take() uint32 {
	if n.room() == 0 {
		return 0
	}
	for {
		n.next = (n.next + 1) % program.MaxPorts
		if _, taken := n.used[n.next]; !taken && n.next != 0 {
			n.claim(n.next)
			return n.next
		}
	}
}

// room is how many numbers are free.
func (n *numbering) room() int { return max(0, program.MaxPorts-1-len(n.used)) }

func (n *numbering) claim(number uint32) {
	if n.used == nil {
		n.used = map[uint32]struct{}{}
	}
	n.used[number] = struct{}{}
}

func (n *numbering) free(number uint32) { delete(n.used, number) }
