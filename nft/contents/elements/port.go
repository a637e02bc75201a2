package elements

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// port is what a service port has besides its elements: numbers, which its elements are made of.
type port struct {
	identity
	account   *ledger.Account
	pools     [2]poolState // cluster, local
	ordinals  ordinals     // only with affinity
	answering answering
	waitsFor  time.Duration // the timeout that the port is to have when there is room; 0: it has what it asked for
}

// hasTable reports whether a port, if there is one, has hash tables.
func (p *port) hasTable() bool {
	return p != nil && (p.pools[0].hash.HasTable() || p.pools[1].hash.HasTable())
}

// identity is what the elements of a service port have in common.
type identity struct {
	name     string
	number   uint32 // 0: there was none left; then the port has no pools
	protocol uint8
}

// pool is the number of the cluster pool (0) or the local pool (1).
func (p *identity) pool(i int) uint32 { return p.number<<1 | uint32(i) }

// token is the number for an endpoint of a pool.
func (p *identity) token(n uint32, pool int) uint32 { return n<<program.PoolBits | p.pool(pool) }

// poolState is one pool.
type poolState struct {
	family program.Family
	number uint32 // the lower 20 bits of the scratch number
	// class is how the program draws a slot. A pool without slots has no class, and the kernel does not have it.
	class   program.Class
	classID uint32
	order   []uint16         // its slots, in the order of the addresses of their endpoints; nil: the slots are given
	earlier []netip.AddrPort // the endpoints in the slots that an earlier process left, until the pool is set for the first time
	hash    *hashing.Pool    // nil: it never had a table
}

// records adds the elements that say how the pool is served.
func (pl *poolState) records(b *ledger.Builder) {
	if pl.classID != 0 {
		b.Begin(program.Pools)
		b.Word(pl.number)
		b.Value()
		b.Word(pl.classID<<program.PoolBits | pl.number)
		b.End()
	}
	pl.hash.Record(b)
}

// updateHash gives a pool the hash table of its endpoints, or takes it away.
func (pl *poolState) updateHash(h *hashing.Tables, a *ledger.Account, to program.Class, endpoints []contents.Endpoint) {
	if pl.hash == nil {
		pl.hash = hashing.NewPool(pl.number, a)
	}
	if !to.Hashed() {
		endpoints = nil
	}
	h.Update(pl.hash, endpoints)
}

// ServicePorts are those of a table, with their numbers.
type ServicePorts struct {
	family  program.Family
	ledger  *ledger.Ledger
	byName  map[string]*port
	numbers numbering
	waiting waiting
	earlier earlierPorts
}

func newServicePorts(f program.Family, l *ledger.Ledger) ServicePorts {
	return ServicePorts{family: f, ledger: l, byName: map[string]*port{}}
}

// get finds the state of a port, or makes a new one. A port without a number gets one, if one is free. A new port gets the
// number and the slots that an earlier process gave it.
func (s *ServicePorts) get(name string, protocol uint8) *port {
	p := s.byName[name]
	if p == nil {
		p = &port{identity: identity{name: name, protocol: protocol}, account: s.ledger.Open(name)}
		s.byName[name] = p
	}
	if p.number == 0 {
		if !s.inherit(p) {
			p.number = s.numbers.take()
		}
		for i := range p.pools {
			p.pools[i].family, p.pools[i].number = s.family, p.pool(i)
		}
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
	p.name, p.waitsFor = name, 0
	s.byName[name] = p
	s.ledger.Rename(p.account, name)
}

func (s *ServicePorts) drop(p *port) {
	s.ledger.Close(p.account)
	s.numbers.free(p.number)
	s.stopWaiting(p)
	delete(s.byName, p.name)
}

// Inherit reports whether an earlier process may have left ports that have no successor yet.
func (s *ServicePorts) Inherit() bool { return s.earlier != nil }

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
		s.numbers.last = max(s.numbers.last, number)
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
		p.pools[i].earlier, p.pools[i].order = earlier.members(i)
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
	last uint32
}

// take returns a free number; 0: there is none.
func (n *numbering) take() uint32 {
	if n.room() == 0 {
		return 0
	}
	number := contents.NextNumber(&n.last, 1, program.MaxPorts, func(number uint32) bool { _, taken := n.used[number]; return taken })
	n.claim(number)
	return number
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
