package mirror

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// sharedSets own the sets of addresses that service ports share: an address is there as long as one of them needs it.
type sharedSets struct {
	clusterIPs refSet
	hairpin    refSet // addresses of endpoints on this node
	guards     guards
	answers    answers
}

func newSharedSets() sharedSets {
	return sharedSets{
		clusterIPs: newRefSet(), hairpin: newRefSet(), guards: guards{now: map[netip.Addr]bool{}, leaving: map[netip.Addr]bool{}},
		answers: answers{map[netip.AddrPort][]wish{}, map[netip.AddrPort]netip.AddrPort{}, map[string]bool{}},
	}
}

// sharedIDs are the sets.
func sharedIDs() []program.SetID {
	return []program.SetID{program.ClusterIPs, program.Hairpin, program.IPVSAddresses}
}

// countClusterIPs adds or removes a user of each cluster IP.
func (s *sharedSets) countClusterIPs(list []contents.Frontend, by int32) {
	for _, fe := range list {
		if fe.ClusterIP && fe.Addr.IsValid() {
			s.clusterIPs.change(fe.Addr, by)
		}
	}
}

// updateHairpin counts a port's endpoints on this node, and returns their addresses. before are those that it had. Their connections to themselves need masquerading; otherwise,
// the answers do not come back through the node.
func (s *sharedSets) updateHairpin(before []netip.Addr, want *contents.Port) []netip.Addr {
	ips := slices.Clone(want.Hairpin)
	for _, list := range [][]contents.Endpoint{want.Cluster, want.Local} {
		for _, e := range list {
			if e.Local {
				ips = append(ips, e.Addr.Addr())
			}
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	ips = slices.Compact(ips)
	if slices.Equal(ips, before) {
		return before
	}
	for _, ip := range ips {
		s.hairpin.change(ip, 1)
	}
	for _, ip := range before {
		s.hairpin.change(ip, -1)
	}
	return ips
}

// Guard notes addresses of a family, and returns those that the kernel does not have yet.
func (s *sharedSets) Guard(f program.Family, addrs []netip.Addr) []netip.Addr {
	return s.guards.add(f, addrs)
}

// Unguard ends the protection of addresses with the next transaction.
func (s *sharedSets) Unguard(addrs []netip.Addr) { s.guards.remove(addrs) }

// write writes what has changed since the last transaction.
func (s *sharedSets) write(w program.Writer) {
	s.guards.write(w)
	s.answers.write(w)
	s.clusterIPs.write(w, program.ClusterIPs)
	s.hairpin.write(w, program.Hairpin)
}

// rewrite writes all guards, and has write add the other addresses, as for an empty table.
func (s *sharedSets) rewrite(w program.Writer) {
	s.guards.rewrite(w)
	s.clusterIPs.rewrite()
	s.hairpin.rewrite()
	s.answers.rewrite()
}

// addressElement is the element of an address in one of the sets.
func addressElement(w program.Writer, id program.SetID, addr netip.Addr) program.Element {
	return w.Element("", func(b *program.Builder) {
		b.Addr(addr)
		if id == program.Hairpin {
			b.Addr(addr)
		}
	}, nil)
}

// has reports whether the kernel is to have an address in a set.
func (s *sharedSets) has(id program.SetID, addr netip.Addr) bool {
	switch id {
	case program.ClusterIPs:
		return s.clusterIPs.count[addr] > 0
	case program.Hairpin:
		return s.hairpin.count[addr] > 0
	case program.IPVSAddresses:
		return s.guards.now[addr] || s.guards.leaving[addr] // what leaves does so with the next transaction
	}
	return false
}

// addresses are those that the kernel is to have in a set.
func (s *sharedSets) addresses(id program.SetID) []netip.Addr {
	switch id {
	case program.ClusterIPs:
		return slices.Collect(maps.Keys(s.clusterIPs.count))
	case program.Hairpin:
		return slices.Collect(maps.Keys(s.hairpin.count))
	}
	return slices.AppendSeq(slices.Collect(maps.Keys(s.guards.now)), maps.Keys(s.guards.leaving))
}

// List adds the elements of some addresses, as far as the kernel is to have them.
func (s *sharedSets) List(w program.Writer, id program.SetID, addrs ...netip.Addr) {
	for _, addr := range addrs {
		if s.has(id, addr) {
			w.Insert(id, addressElement(w, id, addr))
		}
	}
}

// refSet counts the users of addresses. Between two writes, it notes the addresses that get their first user or lose
// their last one.
type refSet struct {
	count  map[netip.Addr]int32
	before map[netip.Addr]int32
}

func newRefSet() refSet {
	return refSet{count: map[netip.Addr]int32{}, before: map[netip.Addr]int32{}}
}

func (s *refSet) change(ip netip.Addr, by int32) {
	if _, seen := s.before[ip]; !seen {
		s.before[ip] = s.count[ip]
	}
	if s.count[ip] += by; s.count[ip] == 0 {
		delete(s.count, ip)
	}
}

// rewrite has write add every address, as for an empty table.
func (s *refSet) rewrite() {
	clear(s.before)
	for ip := range s.count {
		s.before[ip] = 0
	}
}

// write writes the addresses that have come or gone.
func (s *refSet) write(w program.Writer, id program.SetID) {
	var differ []netip.Addr
	for ip, before := range s.before {
		if (before > 0) != (s.count[ip] > 0) {
			differ = append(differ, ip)
		}
	}
	slices.SortFunc(differ, netip.Addr.Compare) // so that equal changes make equal transactions
	for _, ip := range differ {
		w.Change(id, s.count[ip] > 0, addressElement(w, id, ip))
	}
	if len(s.before) > 0 {
		// A map never shrinks, and a walk over it takes time by its size. If the map of the first pass were only
		// cleared, every later pass would take time for all cluster IPs.
		s.before = map[netip.Addr]int32{}
	}
}

// guards own the addresses that are local for IPVS.
type guards struct {
	now     map[netip.Addr]bool
	leaving map[netip.Addr]bool // no longer guarded, but still in the kernel
}

func (g *guards) add(f program.Family, addrs []netip.Addr) (fresh []netip.Addr) {
	for _, a := range addrs {
		if program.FamilyOf(a) != f {
			continue
		}
		leaving := g.leaving[a]
		delete(g.leaving, a)
		if !g.now[a] {
			g.now[a] = true
			if !leaving {
				fresh = append(fresh, a)
			}
		}
	}
	return fresh
}

func (g *guards) remove(addrs []netip.Addr) {
	for _, a := range addrs {
		if g.now[a] {
			delete(g.now, a)
			g.leaving[a] = true
		}
	}
}

// write deletes the guards that have ended. New guards are in the kernel already.
func (g *guards) write(w program.Writer) {
	for _, a := range slices.SortedFunc(maps.Keys(g.leaving), netip.Addr.Compare) {
		w.Remove(program.IPVSAddresses, addressElement(w, program.IPVSAddresses, a))
	}
	if len(g.leaving) > 0 {
		g.leaving = map[netip.Addr]bool{}
	}
}

// rewrite writes all guards.
func (g *guards) rewrite(w program.Writer) {
	g.leaving = map[netip.Addr]bool{}
	for _, a := range slices.SortedFunc(maps.Keys(g.now), netip.Addr.Compare) {
		w.Insert(program.IPVSAddresses, addressElement(w, program.IPVSAddresses, a))
	}
}

// settings own what belongs to no service port.
type settings struct {
	wanted        contents.Globals // the rules are always written for these
	written       contents.Globals // those whose elements the latest transaction has
	changed       bool
	affinityShare uint32 // as in Options
}

// set notes the wanted globals. Each transaction writes the difference once, so several changes before one Apply do no
// harm.
func (s *settings) set(g contents.Globals) { s.wanted, s.changed = g, true }

// rewrite has write add all elements, as for an empty table.
func (s *settings) rewrite() { s.written, s.changed = contents.Globals{}, true }

// program is the program under the wanted globals.
func (s *settings) program(f program.Family, lengths program.LengthGroups) program.Program {
	p := s.wanted.Program(f)
	p.AffinityShare, p.Lengths = s.affinityShare, lengths
	return p
}

// write updates the sets that belong to no service port. It does not look at the globals that rules depend on: if those
// change, the engine writes the whole table.
func (s *settings) write(w program.Writer) {
	if !s.changed {
		return
	}
	old, want := s.written, s.wanted
	s.written, s.changed = want, false
	updateRanges(w, program.ServiceCIDRs, old.ServiceCIDRs, want.ServiceCIDRs)
	updateRanges(w, program.PodCIDRs, old.PodCIDRs, want.PodCIDRs)
	w.Diff(nodePortAddresses(w, old), nodePortAddresses(w, want))
}

// list adds the elements that the kernel has.
func (s *settings) list(w program.Writer) {
	kernel := settings{wanted: s.written, changed: true}
	kernel.write(w)
}

func nodePortAddresses(w program.Writer, g contents.Globals) []program.Placed {
	var out []program.Placed
	for _, a := range g.NodePortAddresses {
		if program.FamilyOf(a) == w.Family {
			out = append(out, program.Placed{Set: program.NodePortAddresses, Element: w.Element("", func(b *program.Builder) { b.Addr(a) }, nil)})
		}
	}
	return w.Sorted(out)
}

// updateRanges replaces the prefixes in a set whose key is one range. In such a set each range is two elements.
func updateRanges(w program.Writer, id program.SetID, old, want []netip.Prefix) {
	before, after := program.WithoutNested(old, w.Family), program.WithoutNested(want, w.Family)
	for _, p := range before {
		if !slices.Contains(after, p) {
			rangeElements(w.Transaction, p, func(e program.Element) { w.Remove(id, e) })
		}
	}
	for _, p := range after {
		if !slices.Contains(before, p) {
			rangeElements(w.Transaction, p, func(e program.Element) { w.Insert(id, e) })
		}
	}
}

// rangeElements makes the two elements of a range: its first address, and the first address after it. A range that
// includes the last address of the family has only the first one.
func rangeElements(t *program.Transaction, p netip.Prefix, put func(program.Element)) {
	put(t.Element("", func(b *program.Builder) { b.Addr(p.Addr()) }, nil))
	behind := program.LastAddr(p).Next()
	if !behind.IsValid() {
		return
	}
	end := t.Element("", func(b *program.Builder) { b.Addr(behind) }, nil)
	end.IntervalEnd = true
	put(end)
}
