package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// candidate is an endpoint of one Service port.
type candidate struct {
	hi, lo uint64
	port   uint16
	weight uint16
	flags  flags
}

// endpoints are those of a Service in one family. All ports of the Service share them, because ports differ in their
// numbers and not in their addresses.
type endpoints struct {
	env       *Environment
	slices    []*state.Slice
	members   members      // sorted by address
	bySlice   []member     // the same by slice, if named is used
	misplaced int          // how many are
	begins    []int        // where each slice begins in bySlice
	some      members      // those of the slices that serve the current port
	numbers   []uint16     // port number of the current port in each slice; 0: the slice does not serve the port
	last      []portNumber // what numbers has, if named is used
	named     namedPorts
	podCIDRs  Evidence
	localBad  map[netip.Addr]bool // ready addresses on this node: whether they are bad at each port so far
	elsewhere bool                // one on another node is ready and good at some port so far
}

// candidates are the endpoints of one Service port, sorted by address and port.
type candidates struct {
	list    []candidate
	mixed   bool    // the ports of an address are not in order yet
	shifted int     // endpoints that a range leaves out
	levels  []flags // see topology
	allDown state.AllDown
}

// collect gathers the endpoints of one family from all slices, sorted by address: a number of them at most, or all if
// that is less than zero. It returns how many have no room.
func (e *endpoints) collect(family state.Family, svc *state.Service, most int) (cut int) {
	used := e.named.fill(svc.Ports, e.slices)
	for _, sl := range e.slices[used:] {
		cut += len(sl.Endpoints)
	}
	e.slices = e.slices[:used]
	e.numbers, e.last = slices.Grow(e.numbers[:0], len(e.slices))[:len(e.slices)], nil
	clear(e.numbers)
	e.localBad, e.elsewhere, e.misplaced = nil, false, 0
	e.members.list, e.begins = e.members.list[:0], e.begins[:0]
	for i, sl := range e.slices {
		e.begins = append(e.begins, len(e.members.list))
		if sl.Family != family || len(sl.Ports) == 0 {
			continue
		}
		for j := range sl.Endpoints {
			found := &sl.Endpoints[j]
			if state.FamilyOf(found.Addr) != family {
				continue
			}
			if most >= 0 && len(e.members.list) >= most {
				cut++
				continue
			}
			e.weigh(found)
			m := member{slice: uint32(i), weight: svc.WeightOf(found, sl)}
			m.flags = e.env.flagsOf(found, sl, m.weight)
			e.misplaced += toInt(m.flags == misplaced)
			m.hi, m.lo = numbers(found.Addr)
			e.members.list = append(e.members.list, m)
		}
	}
	e.begins = append(e.begins, len(e.members.list))
	if e.bySlice = e.bySlice[:0]; e.named.used {
		e.bySlice = append(e.bySlice, e.members.list...)
	}
	e.members.sort()
	return cut
}

// weigh adds what an endpoint shows about the podCIDRs. One in the network of the host shows nothing.
func (e *endpoints) weigh(found *state.Endpoint) {
	here := found.Node == e.env.NodeName
	in := func(r netip.Prefix) bool { return r.Contains(found.Addr) }
	if within := slices.ContainsFunc(e.env.PodCIDRs, in); found.Node != "" && (here || within) && !slices.Contains(e.env.NodeAddresses, found.Addr) {
		e.podCIDRs.For = e.podCIDRs.For || here && within
		e.podCIDRs.Against = e.podCIDRs.Against || here != within
	}
}

// fill lists the endpoints of one port. Each pair of address and port occurs once. A range leaves out endpoints that serve at
// another port than its first one.
func (e *endpoints) fill(of *candidates, ports []state.ServicePort, index int, r *room) {
	e.fillNumbers(ports, index)
	of.list, of.mixed, of.shifted = of.list[:0], false, 0
	list := e.members.list
	if e.named.used {
		list = e.serving(index, r)
	}
	for i := range list {
		m := &list[i]
		switch number := e.numbers[m.slice]; {
		case number == 0:
		case ports[index].EndPort != 0 && number != ports[index].Port:
			of.shifted++
		default:
			of.add(candidate{hi: m.hi, lo: m.lo, port: number, weight: m.weight, flags: m.flags})
		}
	}
	if of.mixed {
		of.sort()
	}
}

// serving returns the members of the slices that serve a port, sorted by address. Those of other slices are not looked at: many
// ports may have many endpoints, each its own.
func (e *endpoints) serving(index int, r *room) []member {
	n, all := 0, len(e.members.list)
	for _, of := range e.named.numbers[index] {
		n += e.begins[of.slice+1] - e.begins[of.slice]
	}
	if n = r.look(n); n == all {
		return e.members.list
	}
	e.some.list = e.some.list[:0]
	for _, of := range e.named.numbers[index] {
		list := e.bySlice[e.begins[of.slice]:e.begins[of.slice+1]]
		e.some.list = append(e.some.list, list[:min(len(list), n-len(e.some.list))]...)
	}
	e.some.sort()
	return e.some.list
}

// fillNumbers finds the number of a port in each slice. A named target port may differ from slice to slice.
func (e *endpoints) fillNumbers(ports []state.ServicePort, index int) {
	if !e.named.used {
		e.numbers = e.numbers[:0]
		for _, sl := range e.slices {
			e.numbers = append(e.numbers, numberIn(sl.Ports, &ports[index]))
		}
		return
	}
	for _, n := range e.last {
		e.numbers[n.slice] = 0
	}
	e.last = e.named.numbers[index]
	for _, n := range e.last {
		e.numbers[n.slice] = n.number
	}
}

// few is the number of ports up to which the ports of slices are searched one by one. Nearly every Service has fewer.
const few = 16

// namedPorts has the numbers of all ports of a Service with many ports, in each slice that serves them. To search the ports of
// each slice for each port of the Service would take quadratic time, and so would a table of all ports and slices.
type namedPorts struct {
	used    bool
	numbers [][]portNumber // by port
}

type portNumber struct {
	slice  uint32
	number uint16
}

type portID struct {
	name     string
	protocol state.Protocol
}

// maxSlicePorts is how many ports of slices are looked at. Each of them has an endpoint, so the limit of elements leaves no more.
const maxSlicePorts = 1 << 17

// fill returns how many slices are used, the first ones.
func (n *namedPorts) fill(ports []state.ServicePort, list []*state.Slice) int {
	if n.used = len(ports) > few; !n.used {
		return len(list)
	}
	room := maxSlicePorts
	n.numbers = make([][]portNumber, len(ports))
	var index map[portID]int
	for at, sl := range list {
		if len(sl.Endpoints) == 0 {
			continue
		}
		if index == nil {
			index = make(map[portID]int, len(ports))
			for i := range ports {
				index[portID{ports[i].Name, ports[i].Protocol}] = i
			}
		}
		if room -= len(sl.Ports); room < 0 && at > 0 {
			return at
		}
		n.add(index, uint32(at), sl)
	}
	return len(list)
}

// add adds the ports of a slice. The first of equal ports counts.
func (n *namedPorts) add(index map[portID]int, at uint32, sl *state.Slice) {
	for i := range sl.Ports {
		port := &sl.Ports[i]
		j, wanted := index[portID{port.Name, port.Protocol}]
		if of := n.numbers[j]; wanted && (len(of) == 0 || of[len(of)-1].slice != at) {
			n.numbers[j] = append(of, portNumber{at, port.Port})
		}
	}
}

func numberIn(ports []state.SlicePort, want *state.ServicePort) uint16 {
	for i := range ports {
		if ports[i].Protocol == want.Protocol && ports[i].Name == want.Name {
			return ports[i].Port
		}
	}
	return 0
}

// add adds an endpoint. Addresses arrive in order. An address may come with several ports. It comes twice when an
// endpoint moves between slices, or when a new Pod got the address of a terminating one.
func (c *candidates) add(next candidate) {
	if n := len(c.list); n > 0 && c.list[n-1].hi == next.hi && c.list[n-1].lo == next.lo {
		before := &c.list[n-1]
		if before.port == next.port {
			before.merge(next)
			return
		}
		c.mixed = c.mixed || before.port > next.port
	}
	c.list = append(c.list, next)
}

// sort puts the ports of each address in order. To insert each port where it belongs would take quadratic time.
func (c *candidates) sort() {
	slices.SortStableFunc(c.list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo), cmp.Compare(a.port, b.port))
	})
	last := 0
	for _, next := range c.list[1:] {
		before := &c.list[last]
		if before.hi == next.hi && before.lo == next.lo && before.port == next.port {
			before.merge(next)
			continue
		}
		last++
		c.list[last] = next
	}
	c.list = c.list[:last+1]
}

// merge makes one of two endpoints with the same address and port.
func (c *candidate) merge(next candidate) {
	if preferred(next.flags, c.flags) {
		*c = next
	}
}

// preferred reports whether a wins over b, when both have the same address and port. The Pod that is not terminating
// wins, as in upstream. Where upstream takes any of the two, the one that can serve more wins.
func preferred(a, b flags) bool {
	if (a^b)&terminating != 0 {
		return b&terminating != 0
	}
	return rank(a) > rank(b)
}

func rank(f flags) int {
	switch {
	case f&ready != 0:
		return 3
	case f&draining != 0:
		return 2
	case f&flowing != 0:
		return 1
	}
	return 0
}

func (c *candidate) addr(family state.Family) netip.AddrPort {
	return netip.AddrPortFrom(address(family, c.hi, c.lo), c.port)
}

// note remembers for healthCheckNodePort whether other nodes have good addresses, and which ones on this node are bad, if any are
// judged. One that is good on any port is good.
func (e *endpoints) note(family state.Family, at []candidate, judged bool) {
	e.elsewhere = e.elsewhere || slices.ContainsFunc(at, func(c candidate) bool { return c.flags&(ready|remote|bad) == ready|remote })
	if !judged {
		return
	}
	if e.localBad == nil {
		e.localBad = map[netip.Addr]bool{}
	}
	for i := range at {
		if c := &at[i]; c.flags&(ready|local) == ready|local {
			addr := address(family, c.hi, c.lo)
			before, known := e.localBad[addr]
			e.localBad[addr] = c.flags&bad != 0 && (before || !known)
		}
	}
}

// localGood counts the addresses on this node that are ready on any port, without those that are bad on each port that
// has them.
func (e *endpoints) localGood() (n int) {
	const mask = ready | local
	counted := false
	for i := range e.members.list {
		m := &e.members.list[i]
		if i > 0 && (m.hi != e.members.list[i-1].hi || m.lo != e.members.list[i-1].lo) {
			counted = false
		}
		if !counted && m.flags&mask == mask {
			n++
			counted = true
		}
	}
	for _, isBad := range e.localBad {
		n -= toInt(isBad)
	}
	return n
}

// pool lists the endpoints of a selection.
func (c *candidates) pool(family state.Family, of selection, r *room) []serviceport.Endpoint {
	n := c.count(of)
	if n == 0 {
		return nil
	}
	n = r.element(n)
	out := make([]serviceport.Endpoint, 0, n)
	for i := range c.list {
		e := &c.list[i]
		if of.has(e.flags) && len(out) < n {
			e.flags |= pooled
			out = append(out, serviceport.Endpoint{
				Addr: e.addr(family), Weight: e.weight, Local: e.flags&local != 0,
			})
		}
	}
	return out
}

// keeping lists the endpoints with all of some flags that keep what goes to them. An endpoint of a pool has its room
// already and is never left out: flows that the pool begins would be deleted again. A bad one that is in no pool is left
// out, so that its flows go elsewhere.
func (c *candidates) keeping(all flags, family state.Family, r *room) []netip.AddrPort {
	inPools := c.count(selection{some: true, all: all | pooled})
	others := c.count(selection{some: true, all: all, not: pooled | bad})
	if inPools+others == 0 {
		return nil
	}
	others = r.element(others)
	out := make([]netip.AddrPort, 0, inPools+others)
	for i := range c.list {
		e := &c.list[i]
		switch {
		case e.flags&all != all:
			continue
		case e.flags&pooled != 0:
		case others == 0 || e.flags&bad != 0:
			continue
		default:
			others--
		}
		out = append(out, e.addr(family))
	}
	return out
}
