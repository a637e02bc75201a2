package conntrack

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Stale is which flows are stale after a pass.
type Stale struct {
	targets    index[target]
	unanswered index[[]netip.AddrPort] // endpoints whose connections without an answer are to be deleted, sorted
	revision   uint64                  // of the Tracker when it made this
	namespaces []string                // whose changes are cleaned
	found      []int                   // how many flows a cleaning found at the frontends of each
}

// index finds what is known of the frontend to which a flow goes. What is not settled gives way to others at the same place.
type index[V any] struct {
	at      map[Frontend]V
	settled func(*V) bool
	ranges  map[rangeKey]rangesAt
}

// rangeKey is an address and a protocol with ranges of ports.
type rangeKey struct {
	addr netip.Addr
	tcp  bool
}

// rangesAt are ranges in the order of their first ports: a tenant can have thousands. Of those that are settled, only one has
// a port. Others may overlap with these and each other; last has the largest last port of others so far.
type rangesAt struct {
	settled, others []Frontend
	last            []uint16
}

func indexOf[V any](at map[Frontend]V, settled func(*V) bool) index[V] {
	x := index[V]{at: at, settled: settled, ranges: map[rangeKey]rangesAt{}}
	for f, v := range at {
		if f.EndPort == 0 {
			continue
		}
		r := x.ranges[rangeKey{f.Addr, f.TCP}]
		if settled(&v) {
			r.settled = append(r.settled, f)
		} else {
			r.others = append(r.others, f)
		}
		x.ranges[rangeKey{f.Addr, f.TCP}] = r
	}
	for key, r := range x.ranges {
		for _, list := range [][]Frontend{r.settled, r.others} {
			slices.SortFunc(list, func(a, b Frontend) int { return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.EndPort, b.EndPort)) })
		}
		last := uint16(0)
		for _, f := range r.others {
			last = max(last, f.EndPort)
			r.last = append(r.last, last)
		}
		x.ranges[key] = r
	}
	return x
}

// within finds the range that has a place: one that is settled before others.
func (x *index[V]) within(to Frontend) (found Frontend, ok bool) {
	r := x.ranges[rangeKey{to.Addr, to.TCP}]
	after, exact := slices.BinarySearchFunc(r.settled, to.Port, func(f Frontend, port uint16) int { return cmp.Compare(f.Port, port) })
	if exact {
		after++
	}
	if after > 0 && to.Port <= r.settled[after-1].EndPort {
		return r.settled[after-1], true
	}
	if i, _ := slices.BinarySearch(r.last, to.Port); i < len(r.last) && r.others[i].Port <= to.Port {
		return r.others[i], true
	}
	return found, false
}

// find returns what is known, and the flow as that describes it. What is not settled gives way to a node port, and then to a
// range. Node ports exist only at the given addresses; at another address, the same port belongs to another program.
func (x *index[V]) find(f Flow, nodePortAddrs map[netip.Addr]bool) (v V, is Flow, ok bool) {
	to := Frontend{Addr: f.Dst.Addr(), Port: f.Dst.Port(), Family: state.FamilyOf(f.Dst.Addr()), TCP: f.TCP}
	v, ok = x.at[to]
	if (!ok || !x.settled(&v)) && nodePortAddrs[to.Addr] {
		nodePort := to
		nodePort.Addr = netip.Addr{}
		if other, found := x.at[nodePort]; found {
			v, ok = other, true
		}
	}
	if !ok || !x.settled(&v) {
		if r, found := x.within(to); found {
			return x.at[r], f.atFirstPort(r.Port), true
		}
	}
	return v, f, ok
}

// target is a frontend that may have stale flows.
type target struct {
	removed bool
	by      engine           // who serves it
	good    []netip.AddrPort // endpoints whose flows stay, sorted
	changed *atomic.Uint64   // the Tracker's revision when the frontend changed last
	found   *int             // of its namespace
}

func isServed(t *target) bool { return !t.removed }

func always(*[]netip.AddrPort) bool { return true }

// Empty reports whether there is nothing to look for.
func (s *Stale) Empty() bool { return len(s.targets.at)+len(s.unanswered.at) == 0 }

// Causes divides what a cleaning took among the namespaces: as much as the flows at their frontends, and equal parts of the
// walk over the table, which takes as long as flowsOfWalk flows.
func (s *Stale) Causes(took time.Duration) map[string]time.Duration {
	all := flowsOfWalk
	for _, n := range s.found {
		all += n
	}
	causes := make(map[string]time.Duration, len(s.namespaces))
	for i, namespace := range s.namespaces {
		part := float64(flowsOfWalk)/float64(len(s.namespaces)) + float64(s.found[i])
		causes[namespace] = time.Duration(float64(took) * part / float64(all))
	}
	return causes
}

const flowsOfWalk = 5000

func (s *Stale) hasUnanswered(family state.Family) bool {
	for f := range s.unanswered.at {
		if f.Family == family {
			return true
		}
	}
	return false
}

// frontends lists the frontends of a family and a protocol that may have stale flows.
func (s *Stale) frontends(family state.Family, tcp bool) (list []Frontend) {
	for f := range s.targets.at {
		if f.Family == family && f.TCP == tcp {
			list = append(list, f)
		}
	}
	return list
}

// has reports whether a flow is stale. It skips frontends that changed since the Tracker made s: the kernel may have
// newer rules already, and flows of these rules may go to endpoints that s does not know. The next cleaning looks at
// them. The Tracker records a change before the kernel gets the new rules, so has knows of it before it sees a flow of
// the new rules.
//
// A removed frontend may have the address and port of a node port, which serves its flows then.
func (s *Stale) has(f Flow, nodePortAddrs map[netip.Addr]bool) bool {
	t, f, ok := s.targets.find(f, nodePortAddrs)
	if ok {
		*t.found++
	}
	return ok && t.stale(f) && t.changed.Load() <= s.revision
}

// isUnanswered reports whether a connection never had an answer from an endpoint that is left out.
func (s *Stale) isUnanswered(e *entry, nodePortAddrs map[netip.Addr]bool) bool {
	if !e.TCP || e.answered() {
		return false
	}
	list, f, _ := s.unanswered.find(e.Flow, nodePortAddrs)
	return contains(list, f.Reply)
}

func contains(sorted []netip.AddrPort, at netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(sorted, at, netip.AddrPort.Compare)
	return found
}

func (t *target) stale(f Flow) bool {
	good := !t.removed && contains(t.good, f.Reply)
	translated := f.Reply != f.Dst
	if f.TCP {
		return translated && f.DNAT && !good // others are not ours
	}
	if !translated {
		// An endpoint may have the address and port of its frontend: then the kernel has nothing to translate.
		//
		// Other software (OVS, SR-IOV) tracks the same packets in its own zones, before or after our translation. So a
		// flow without a translation in such a zone does not mean that our rules did not translate it.
		return !good && !t.removed && f.Zone == 0 && t.by != unchanged
	}
	if !f.DNAT && t.by == byNFT {
		// IPVS made the flow, and does not serve the frontend any more: the packets go nowhere.
		return true
	}
	return !good
}
