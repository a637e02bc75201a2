package nft

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// lister collects what the sets of one table say about each frontend.
type lister struct {
	kernel    readable
	family    Family
	was       existing
	match     func(name string) bool
	frontends map[frontendKey]*listed
	classOf   map[uint32]uint32           // the number of a pool's class, by the number of the pool
	classes   map[uint32]class            // by number
	pools     map[uint32][]EndpointStatus // by number, those that were read
}

type frontendKey struct {
	addr     netip.Addr
	protocol uint8
	port     uint16
}

type listed struct {
	FrontendStatus
	number uint32 // the data in the map of frontends; 0: the map does not have the frontend
}

func newLister(k readable, f Family, was existing, match func(string) bool) *lister {
	return &lister{
		kernel: k, family: f, was: was, match: match, frontends: map[frontendKey]*listed{},
		classOf: map[uint32]uint32{}, classes: map[uint32]class{}, pools: map[uint32][]EndpointStatus{},
	}
}

func (l *lister) read(out *Listing) error {
	for _, step := range []func() error{l.readFrontends, l.readClasses, l.readPools} {
		if err := step(); err != nil {
			return err
		}
	}
	err := l.dump(setNodePortAddresses, func(e foundElement) {
		if a, ok := netip.AddrFromSlice(e.key); ok {
			out.NodePortAddresses = append(out.NodePortAddresses, a)
		}
	})
	slices.SortFunc(out.NodePortAddresses, netip.Addr.Compare)
	first := len(out.Frontends)
	for _, fe := range l.frontends {
		out.Frontends = append(out.Frontends, fe.FrontendStatus)
	}
	slices.SortFunc(out.Frontends[first:], func(a, b FrontendStatus) int { return a.compare(&b) })
	return err
}

// dump reads a set. A set that does not exist is empty: the table is of an earlier version, or another program deleted
// the set. While the kernel resizes the hash table of a large set, some time after a change, a dump leaves out elements
// and repeats others. So dump reads the set until two readings in a row find the same number of elements.
func (l *lister) dump(set string, each func(foundElement)) error {
	if _, ok := l.was.sets[set]; !ok {
		return nil
	}
	var elements map[string]foundElement
	for try, before := 0, -1; try < dumpTries && len(elements) != before; try++ {
		before, elements = len(elements), map[string]foundElement{}
		err := l.kernel.dumpElements(l.family, set, func(e foundElement) { elements[string(e.key)] = e.clone() })
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	for _, e := range elements {
		each(e)
	}
	return nil
}

// dumpTries is how often a set is read that changes all the time.
const dumpTries = 5

// frontendSet is a set whose keys are frontends, and what it says about them.
type frontendSet struct {
	name     string
	nodePort bool
	note     func(*listed, *foundElement)
}

func frontendSetsToRead() []frontendSet {
	reject := func(fe *listed, e *foundElement) { fe.Refusal, fe.Refused = Reject, e.packets }
	drop := func(fe *listed, e *foundElement) { fe.Refusal, fe.Refused = Drop, e.packets }
	ipvs := func(fe *listed, _ *foundElement) { fe.IPVS = true }
	firewalled := func(fe *listed, _ *foundElement) { fe.Firewalled = true }
	return []frontendSet{
		{mapServices, false, (*listed).notePool}, {mapNodePorts, true, (*listed).notePool},
		{setNoEndpoints, false, reject}, {setNoEndpointsNodePorts, true, reject},
		{setNoLocalEndpoints, false, drop}, {setNoLocalEndpointsNodePorts, true, drop},
		{setIPVSFrontends, false, ipvs}, {setIPVSNodePorts, true, ipvs},
		{mapFirewalled, false, firewalled},
	}
}

// readFrontends reads the sets whose keys are frontends.
func (l *lister) readFrontends() error {
	for _, s := range frontendSetsToRead() {
		err := l.dump(s.name, func(e foundElement) {
			if k, ok := l.frontendKey(e.key, s.nodePort); ok && (l.match == nil || l.match(e.comment)) {
				s.note(l.frontend(k, e.comment), &e)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) frontendKey(key []byte, nodePort bool) (k frontendKey, ok bool) {
	if !nodePort {
		if len(key) < l.family.addrLen() {
			return k, false
		}
		k.addr, _ = netip.AddrFromSlice(key[:l.family.addrLen()])
		key = key[l.family.addrLen():]
	}
	if len(key) < typeProto.padded()+typeService.bytes {
		return k, false
	}
	k.protocol, k.port = key[0], binary.BigEndian.Uint16(key[typeProto.padded():])
	return k, true
}

func (l *lister) frontend(k frontendKey, name string) *listed {
	fe := l.frontends[k]
	if fe == nil {
		fe = &listed{FrontendStatus: FrontendStatus{Family: l.family, Protocol: k.protocol, Addr: k.addr, Port: k.port}}
		l.frontends[k] = fe
	}
	fe.Name = name
	return fe
}

func (fe *listed) notePool(e *foundElement) {
	if len(e.data) != 4 {
		return
	}
	fe.Connections = e.packets
	fe.number = binary.NativeEndian.Uint32(e.data)
	switch {
	case fe.number&bySourceBit != 0:
		fe.Pool = BySource
	case fe.number&localBit != 0:
		fe.Pool = LocalPool
	default:
		fe.Pool = ClusterPool
	}
}

// readClasses reads the classes from the names of their chains.
func (l *lister) readClasses() error {
	return l.dump(mapDispatch, func(e foundElement) {
		if c, ok := parseClass(string(e.data)); ok && len(e.key) == 4 {
			l.classes[binary.NativeEndian.Uint32(e.key)>>poolBits] = c
		}
	})
}

// readPools reads the endpoints of all pools that frontends use.
func (l *lister) readPools() error {
	err := l.dump(mapPools, func(e foundElement) {
		if len(e.key) == 4 && len(e.data) == 4 {
			l.classOf[binary.NativeEndian.Uint32(e.key)] = binary.NativeEndian.Uint32(e.data) >> poolBits
		}
	})
	for _, fe := range l.frontends {
		if fe.number == 0 || err != nil {
			continue
		}
		number := fe.number & poolMask
		if fe.Pool != LocalPool {
			fe.Cluster, err = l.pool(fe, number)
		}
		if fe.Pool != ClusterPool && err == nil {
			fe.Local, err = l.pool(fe, number|localBit)
		}
	}
	return err
}

// pool reads the endpoints of a pool, and the method and affinity of the frontend from the class of the pool. The
// kernel has no pool without slots.
func (l *lister) pool(fe *listed, number uint32) ([]EndpointStatus, error) {
	c, ok := l.classes[l.classOf[number]]
	if !ok {
		return nil, nil
	}
	fe.Method, fe.Affinity = c.method, c.affinity
	if endpoints, ok := l.pools[number]; ok {
		return endpoints, nil
	}
	read := l.slots
	if c.hashed() {
		read = l.tableSlots
	}
	slots, err := read(number, c)
	endpoints := countSlots(slots)
	l.pools[number] = endpoints
	return endpoints, err
}

// slots asks for the endpoint in each slot. The numbers of slots have no gaps, so the first missing one is the end.
func (l *lister) slots(number uint32, c class) (out []netip.AddrPort, err error) {
	set, decode := mapEndpoints, func(data []byte) { out = l.appendEndpoint(out, data) }
	var tokens []uint32
	if c.affinity > 0 {
		set, decode = mapStickySlots, func(data []byte) { tokens = appendToken(tokens, data) }
	}
	err = readRow(l.kernel, l.family, set, number, c.size, decode)
	return out, errors.Join(err, l.follow(tokens, number, &out))
}

// tableSlots asks for the endpoint in each slot of the pool's hash table.
func (l *lister) tableSlots(number uint32, c class) (out []netip.AddrPort, err error) {
	var pool builder
	pool.word(number)
	found, exists, err := l.kernel.lookup(l.family, mapHashTables, pool.arena)
	if err != nil || !exists || len(found.data) != 4 {
		return nil, err
	}
	value := binary.NativeEndian.Uint32(found.data)
	if port := uint16(value & portMask); port != 0 {
		err := readRow(l.kernel, l.family, mapHashSlots, value&tableMask, c.size, func(data []byte) {
			if addr, ok := netip.AddrFromSlice(data[:min(len(data), l.family.addrLen())]); ok {
				out = append(out, netip.AddrPortFrom(addr, port))
			}
		})
		return out, err
	}
	err = readRow(l.kernel, l.family, mapEndpoints, value&tableMask, c.size, func(data []byte) { out = l.appendEndpoint(out, data) })
	return out, err
}

func appendToken(list []uint32, data []byte) []uint32 {
	if len(data) != 4 {
		return list
	}
	return append(list, binary.NativeEndian.Uint32(data))
}

func (l *lister) appendEndpoint(list []netip.AddrPort, data []byte) []netip.AddrPort {
	n := l.family.addrLen()
	if len(data) < n+typeService.bytes {
		return list
	}
	addr, _ := netip.AddrFromSlice(data[:n])
	return append(list, netip.AddrPortFrom(addr, binary.BigEndian.Uint16(data[n:])))
}

// follow finds the endpoints that tokens stand for. A slot holds the token of the cluster pool; in the local pool the
// same endpoint has another token (see recall).
func (l *lister) follow(tokens []uint32, number uint32, out *[]netip.AddrPort) error {
	for len(tokens) > 0 {
		row := tokens[:min(rowLength, len(tokens))]
		keys := make([][]byte, len(row))
		for i, token := range row {
			var b builder
			b.word(token | number&localBit)
			keys[i] = b.arena
		}
		add := func(e foundElement) { *out = l.appendEndpoint(*out, e.data) }
		found, err := l.kernel.lookupRow(l.family, mapStickyEndpoints, keys, add)
		if err != nil {
			return err
		}
		tokens = tokens[min(found+1, len(row)):] // the first missing one was deleted a moment ago
	}
	return nil
}

// generation is the number of the latest change of any table in the network namespace.
func (c *conn) generation() (n uint32, err error) {
	const generationID = 1 // NFTA_GEN_ID
	err = c.ask(unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, Family(unix.AF_UNSPEC), nil, func(a nlmsg.Attributes) {
		for a.Next() {
			if a.Kind == generationID {
				n = a.Uint32()
			}
		}
	})
	return n, err
}
