package inspect

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// lister collects what the sets of one table say about each frontend.
type lister struct {
	kernel    kernel.Reader
	family    program.Family
	was       kernel.Existing
	match     func(name string) bool
	frontends map[frontendKey]*listed
	classOf   map[uint32]uint32           // the number of a pool's class, by the number of the pool
	classes   map[uint32]program.Class    // by number
	pools     map[uint32][]EndpointStatus // by number, those that were read
}

type frontendKey struct {
	addr     netip.Addr
	protocol uint8
	port     uint16
	lastPort uint16 // of a range; 0: one port
}

type listed struct {
	FrontendStatus
	number uint32 // the data in the map of frontends; 0: the map does not have the frontend
}

func newLister(k kernel.Reader, f program.Family, was kernel.Existing, match func(string) bool) *lister {
	return &lister{
		kernel: k, family: f, was: was, match: match, frontends: map[frontendKey]*listed{},
		classOf: map[uint32]uint32{}, classes: map[uint32]program.Class{}, pools: map[uint32][]EndpointStatus{},
	}
}

func (l *lister) read(out *Listing) error {
	for _, step := range []func() error{l.readFrontends, l.readClasses, l.readPools} {
		if err := step(); err != nil {
			return err
		}
	}
	err := l.dump(program.NodePortAddresses.Name(), func(e kernel.Found) {
		if a, ok := netip.AddrFromSlice(e.Key); ok {
			out.NodePortAddresses = append(out.NodePortAddresses, a)
		}
	})
	slices.SortFunc(out.NodePortAddresses, netip.Addr.Compare)
	first := len(out.Frontends)
	for _, fe := range l.frontends {
		out.Frontends = append(out.Frontends, fe.FrontendStatus)
	}
	slices.SortFunc(out.Frontends[first:], func(a, b FrontendStatus) int { return a.Compare(&b) })
	return err
}

// dump reads a set. A set that does not exist is empty: the table is of an earlier version, or another program deleted
// the set. While the kernel resizes the hash table of a large set, some time after a change, a dump leaves out elements
// and repeats others. So dump reads the set until two readings in a row find the same number of elements.
func (l *lister) dump(set string, each func(kernel.Found)) error {
	if _, ok := l.was.Sets[set]; !ok {
		return nil
	}
	var elements map[string]kernel.Found
	for try, before := 0, -1; try < dumpTries && len(elements) != before; try++ {
		before, elements = len(elements), map[string]kernel.Found{}
		err := l.kernel.DumpElements(l.family, set, func(e kernel.Found) { elements[string(e.Key)] = e.Clone() })
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
	note     func(*listed, *kernel.Found)
}

func frontendSetsToRead() []frontendSet {
	reject := func(fe *listed, e *kernel.Found) { fe.Refusal, fe.Refused = program.Reject, e.Packets }
	drop := func(fe *listed, e *kernel.Found) { fe.Refusal, fe.Refused = program.Drop, e.Packets }
	ipvs := func(fe *listed, _ *kernel.Found) { fe.IPVS = true }
	firewalled := func(fe *listed, _ *kernel.Found) { fe.Firewalled = true }
	return []frontendSet{
		{program.Services.Name(), false, (*listed).notePool}, {program.NoEndpoints.Name(), false, reject},
		{program.NoLocalEndpoints.Name(), false, drop}, {program.IPVSFrontends.Name(), false, ipvs},
		{program.Firewalled.Name(), false, firewalled},
		{program.RangeServices.Name(), false, (*listed).notePool}, {program.RangeNoEndpoints.Name(), false, reject},
		{program.RangeNoLocalEndpoints.Name(), false, drop}, {program.RangeFirewalled.Name(), false, firewalled},
		{program.NodePorts.Name(), true, (*listed).notePool}, {program.NoEndpointsNodePorts.Name(), true, reject},
		{program.NoLocalEndpointsNodePorts.Name(), true, drop}, {program.IPVSNodePorts.Name(), true, ipvs},
	}
}

// readFrontends reads the sets whose keys are frontends.
func (l *lister) readFrontends() error {
	for _, s := range frontendSetsToRead() {
		err := l.dump(s.name, func(e kernel.Found) {
			if k, ok := l.frontendKey(e.Key, s.nodePort); ok && (l.match == nil || l.match(e.Comment)) {
				s.note(l.frontend(k, e.Comment), &e)
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
		if len(key) < l.family.AddrLen() {
			return k, false
		}
		k.addr, _ = netip.AddrFromSlice(key[:l.family.AddrLen()])
		key = key[l.family.AddrLen():]
	}
	if len(key) < program.TypeProto.Padded()+program.TypePort.Padded() {
		return k, false
	}
	k.protocol, k.port = key[0], binary.BigEndian.Uint16(key[program.TypeProto.Padded():])
	if last := key[program.TypeProto.Padded()+program.TypePort.Padded():]; len(last) == program.FrontendLength(l.family) {
		k.lastPort = binary.BigEndian.Uint16(last[len(last)-program.TypePort.Padded():])
	}
	return k, true
}

func (l *lister) frontend(k frontendKey, name string) *listed {
	fe := l.frontends[k]
	if fe == nil {
		fe = &listed{FrontendStatus: FrontendStatus{Family: l.family, Protocol: k.protocol, Addr: k.addr, Port: k.port, LastPort: k.lastPort}}
		l.frontends[k] = fe
	}
	fe.Name = name
	return fe
}

func (fe *listed) notePool(e *kernel.Found) {
	if len(e.Data) != 4 {
		return
	}
	fe.Connections = e.Packets
	fe.number = binary.NativeEndian.Uint32(e.Data)
	switch {
	case fe.number&program.BySourceBit != 0:
		fe.Pool = program.BySource
	case fe.number&program.LocalBit != 0:
		fe.Pool = program.LocalPool
	default:
		fe.Pool = program.ClusterPool
	}
}

// readClasses reads the classes from the names of their chains.
func (l *lister) readClasses() error {
	return l.dump(program.Dispatch.Name(), func(e kernel.Found) {
		if c, ok := program.ParseClass(string(e.Data)); ok && len(e.Key) == 4 {
			l.classes[binary.NativeEndian.Uint32(e.Key)>>program.PoolBits] = c
		}
	})
}

// readPools reads the endpoints of all pools that frontends use.
func (l *lister) readPools() error {
	err := l.dump(program.Pools.Name(), func(e kernel.Found) {
		if len(e.Key) == 4 && len(e.Data) == 4 {
			l.classOf[binary.NativeEndian.Uint32(e.Key)] = binary.NativeEndian.Uint32(e.Data) >> program.PoolBits
		}
	})
	for _, fe := range l.frontends {
		if fe.number != 0 && err == nil {
			err = l.readPoolsOf(fe)
		}
	}
	return err
}

// readPoolsOf reads the endpoints of the pools of one frontend.
func (l *lister) readPoolsOf(fe *listed) (err error) {
	number := fe.number & program.PoolMask
	if fe.Pool != program.LocalPool {
		fe.Cluster, err = l.pool(fe, number)
	}
	if fe.Pool != program.ClusterPool && err == nil {
		fe.Local, err = l.pool(fe, number|program.LocalBit)
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
	fe.Method, fe.Affinity = c.Method, c.Affinity
	if endpoints, ok := l.pools[number]; ok {
		return fe.withPorts(endpoints), nil
	}
	read := l.slots
	if c.Hashed() {
		read = l.tableSlots
	}
	slots, err := read(number, c)
	endpoints := countSlots(slots)
	l.pools[number] = endpoints
	return fe.withPorts(endpoints), err
}

// withPorts gives endpoints without a port the first port of the range.
func (fe *listed) withPorts(list []EndpointStatus) []EndpointStatus {
	if fe.LastPort == 0 || len(list) == 0 || list[0].Addr.Port() != 0 {
		return list
	}
	out := slices.Clone(list)
	for i, e := range out {
		out[i].Addr = netip.AddrPortFrom(e.Addr.Addr(), fe.Port)
	}
	return out
}

// slots asks for the endpoint in each slot. The numbers of slots have no gaps, so the first missing one is the end. Endpoints
// of ranges have the port 0.
func (l *lister) slots(number uint32, c program.Class) (out []netip.AddrPort, err error) {
	decode := func(data []byte) { out = l.appendEndpoint(out, data) }
	var tokens []uint32
	if c.Affinity > 0 {
		decode = func(data []byte) { tokens = appendToken(tokens, data) }
	}
	err = kernel.ReadRow(l.kernel, l.family, c.Slots().Name(), number, c.Size, decode)
	err = errors.Join(err, l.follow(program.StickyEndpoints, tokens, number, &out))
	if len(out) == 0 { // the tokens are of a range, or there are none
		err = errors.Join(err, l.follow(program.StickyAddresses, tokens, number, &out))
	}
	return out, err
}

// tableSlots asks for the endpoint in each slot of the pool's hash table.
func (l *lister) tableSlots(number uint32, c program.Class) (out []netip.AddrPort, err error) {
	var pool program.Builder
	pool.Word(number)
	found, exists, err := l.kernel.Lookup(l.family, program.HashTables.Name(), pool.Arena)
	if err != nil || !exists || len(found.Data) != 4 {
		return nil, err
	}
	value := binary.NativeEndian.Uint32(found.Data)
	if port := uint16(value & program.PortMask); port != 0 {
		err := kernel.ReadRow(l.kernel, l.family, program.HashSlots.Name(), value&program.TableMask, c.Size, func(data []byte) {
			if at, ok := program.EndpointOf(l.family, data); ok {
				out = append(out, netip.AddrPortFrom(at.Addr(), port))
			}
		})
		return out, err
	}
	err = kernel.ReadRow(l.kernel, l.family, program.Endpoints.Name(), value&program.TableMask, c.Size, func(data []byte) { out = l.appendEndpoint(out, data) })
	return out, err
}

func appendToken(list []uint32, data []byte) []uint32 {
	if len(data) != 4 {
		return list
	}
	return append(list, binary.NativeEndian.Uint32(data))
}

func (l *lister) appendEndpoint(list []netip.AddrPort, data []byte) []netip.AddrPort {
	if at, ok := program.EndpointOf(l.family, data); ok {
		list = append(list, at)
	}
	return list
}

// follow finds the endpoints that tokens stand for. A slot holds the token of the cluster pool; in the local pool the
// same endpoint has another token (see recall).
func (l *lister) follow(set program.SetID, tokens []uint32, number uint32, out *[]netip.AddrPort) error {
	for len(tokens) > 0 {
		row := tokens[:min(kernel.RowLength, len(tokens))]
		keys := make([][]byte, len(row))
		for i, token := range row {
			var b program.Builder
			b.Word(token | number&program.LocalBit)
			keys[i] = b.Arena
		}
		add := func(e kernel.Found) { *out = l.appendEndpoint(*out, e.Data) }
		found, err := l.kernel.LookupRow(l.family, set.Name(), keys, add)
		if err != nil {
			return err
		}
		tokens = tokens[min(found+1, len(row)):] // the first missing one was deleted a moment ago
	}
	return nil
}
