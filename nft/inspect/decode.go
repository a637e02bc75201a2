package inspect

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// place is the key of a frontend. A node port has no address.
type place struct {
	addr     netip.Addr
	protocol uint8
	port     uint16
	lastPort uint16 // of a range; 0: one port
}

func (p place) key() []byte {
	var b program.Builder
	b.Frontend(p.addr, p.port, p.lastPort, p.protocol)
	return b.Arena
}

func (t *table) place(key []byte, nodePort bool) (p place, ok bool) {
	if n := t.family.AddrLen(); !nodePort {
		if len(key) < n {
			return p, false
		}
		p.addr, _ = netip.AddrFromSlice(key[:n])
		key = key[n:]
	}
	if len(key) < program.TypeProto.Padded()+program.TypePort.Padded() {
		return p, false
	}
	p.protocol, p.port = key[0], binary.BigEndian.Uint16(key[program.TypeProto.Padded():])
	if last := key[program.TypeProto.Padded()+program.TypePort.Padded():]; len(last) == program.FrontendLength(t.family) {
		p.lastPort = binary.BigEndian.Uint16(last[len(last)-program.TypePort.Padded():])
	}
	return p, true
}

// listed is a frontend, and the data in the map of frontends; 0: the map does not have it.
type listed struct {
	FrontendStatus
	number uint32
}

// frontends reads the frontend at a place, or the range that has it. Without a place, it reads all frontends whose name match
// accepts. If sets are read once, each element makes a frontend of its own.
func (t *table) frontends(at *place, match func(name string) bool) ([]*listed, error) {
	var out []*listed
	byPlace := map[place]*listed{}
	for set := range program.SetCount {
		var key []byte
		nodePorts := set.HasNodePorts()
		switch says := set.Says(); {
		case says != program.Limited && !says.Counted(), at != nil && at.addr.IsValid() == nodePorts:
			continue
		case at != nil:
			key = at.key()
		}
		err := t.elements(set, key, func(e kernel.Found) {
			p, ok := t.place(e.Key, nodePorts)
			if !ok || match != nil && !match(e.Comment) {
				return
			}
			fe := byPlace[p]
			if fe == nil {
				fe = &listed{FrontendStatus: FrontendStatus{Family: t.family, Protocol: p.protocol, Addr: p.addr, Port: p.port, LastPort: p.lastPort}}
				if out = append(out, fe); !t.once {
					byPlace[p] = fe
				}
			}
			fe.note(set.Says(), &e)
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// note notes what a set says about the frontend.
func (fe *listed) note(says program.Says, e *kernel.Found) {
	fe.Name = e.Comment
	switch says {
	case program.Served:
		fe.served(e)
	case program.Balanced:
		fe.IPVS = true
	case program.Rejected:
		fe.Refusal, fe.Refused = program.Reject, e.Packets
	case program.Dropped:
		fe.Refusal, fe.Refused = program.Drop, e.Packets
	case program.Limited:
		fe.Firewalled = true
	}
}

func (fe *listed) served(e *kernel.Found) {
	number, ok := e.Number()
	if !ok {
		return
	}
	fe.number, fe.Connections, fe.Pool = number, e.Packets, program.ClusterPool
	switch {
	case number&program.BySourceBit != 0:
		fe.Pool = program.BySource
	case number&program.LocalBit != 0:
		fe.Pool = program.LocalPool
	}
}

// readPools reads the endpoints of the pools of a frontend.
func (t *table) readPools(fe *listed) (err error) {
	number := fe.number & program.PoolMask
	if number != 0 && fe.Pool != program.LocalPool {
		fe.Cluster, err = t.poolOf(fe, number)
	}
	if number != 0 && fe.Pool != program.ClusterPool && err == nil {
		fe.Local, err = t.poolOf(fe, number|program.LocalBit)
	}
	return err
}

// poolOf reads the endpoints of a pool, and the method and affinity of the frontend from the class of the pool. Without a
// port, they have the first one of the range.
func (t *table) poolOf(fe *listed, number uint32) ([]EndpointStatus, error) {
	c, _, err := t.class(number)
	if err != nil || c.Empty() {
		return nil, err
	}
	fe.Method, fe.Affinity = c.Method, c.Affinity
	list, err := t.pool(number, c)
	if fe.LastPort == 0 || len(list) == 0 || list[0].Addr.Port() != 0 {
		return list, err
	}
	out := slices.Clone(list)
	for i, e := range out {
		out[i].Addr = netip.AddrPortFrom(e.Addr.Addr(), fe.Port)
	}
	return out, err
}

// class is the class of a pool, and the comment of the pool. The kernel has no pool without slots: then the class is empty.
func (t *table) class(number uint32) (c program.Class, name string, err error) {
	pool, found, err := t.find(program.Pools, words(number))
	class, ok := pool.Number()
	if err != nil || !found || !ok {
		return c, "", err
	}
	chain, _, err := t.find(program.Dispatch, words(class&program.ClassMask))
	if c, ok = program.ParseClass(string(chain.Data)); !ok {
		c = program.Class{}
	}
	return c, pool.Comment, err
}

// pool reads the endpoints of a pool.
func (t *table) pool(number uint32, c program.Class) ([]EndpointStatus, error) {
	if list, ok := t.pools[number]; ok {
		return list, nil
	}
	slots, err := t.slots(number, c)
	list := countSlots(slots)
	if t.pools != nil {
		t.pools[number] = list
	}
	return list, err
}

// slots reads the endpoint in each slot of a pool, or only in the given one. Endpoints of ranges have the port 0.
func (t *table) slots(number uint32, c program.Class, only ...uint32) (out []netip.AddrPort, err error) {
	set, port := c.Slots(), uint16(0)
	switch {
	case c.Affinity > 0:
		var tokens []uint32
		err := t.row(set, number, c.Size, only, func(data []byte) {
			if token, ok := kernel.Number(data); ok {
				tokens = append(tokens, token)
			}
		})
		if err != nil {
			return nil, err
		}
		return t.follow(number, tokens...)
	case c.Hashed():
		found, _, err := t.find(program.HashTables, words(number))
		value, ok := found.Number()
		if err != nil || !ok {
			return nil, err
		}
		set, number, port = program.TableOf(value)
	}
	err = t.row(set, number, c.Size, only, func(data []byte) {
		if at, ok := program.EndpointOf(t.family, data); ok {
			out = append(out, netip.AddrPortFrom(at.Addr(), max(port, at.Port())))
		}
	})
	return out, err
}

// row reads the data of consecutive slots, or of the given one. The numbers of slots have no gaps, so the first missing one is
// the end.
func (t *table) row(set program.SetID, number, size uint32, only []uint32, each func(data []byte)) error {
	if only == nil {
		return kernel.ReadRow(t.kernel, t.family, set, number, size, each)
	}
	e, found, err := t.find(set, words(number, only[0]))
	if found {
		each(e.Data)
	}
	return err
}

// follow finds the endpoints that tokens stand for in a pool. Slots and entries have tokens of the cluster pool; in the local
// pool the same endpoint has another token (see recall). Those of ranges are in a map of their own.
func (t *table) follow(number uint32, tokens ...uint32) (out []netip.AddrPort, err error) {
	keys := make([][]byte, len(tokens))
	for i, token := range tokens {
		keys[i] = words(token ^ number&program.LocalBit)
	}
	for _, set := range []program.SetID{program.StickyEndpoints, program.StickyAddresses} {
		err = t.findAll(set, keys, func(e kernel.Found) {
			if at, ok := program.EndpointOf(t.family, e.Data); ok {
				out = append(out, at)
			}
		})
		if err != nil || len(out) > 0 {
			break
		}
	}
	return out, err
}

// addresses reads the addresses with which the keys of a set begin, sorted.
func (t *table) addresses(set program.SetID) (out []netip.Addr, err error) {
	err = t.elements(set, nil, func(e kernel.Found) {
		if at, ok := program.EndpointOf(t.family, e.Key); ok {
			out = append(out, at.Addr())
		}
	})
	slices.SortFunc(out, netip.Addr.Compare)
	return out, err
}
