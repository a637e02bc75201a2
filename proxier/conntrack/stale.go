package conntrack

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Stale is which flows are stale after a pass.
type Stale struct {
	targets    index
	unanswered index                // what is to be deleted of connections without an answer
	revision   uint64               // of the Tracker when it made this
	taken      map[state.Name]*look // where it looks for connections without an answer; nil: it is of endpoints that were left out
	found      map[string]*int      // how many flows a cleaning found, by the namespaces whose changes are cleaned
	hurried    *atomic.Bool         // others wait; nil: nobody asks
}

// Hurry has a cleaning that is under way end early, because others wait for it.
func (s *Stale) Hurry() {
	if s.hurried != nil {
		s.hurried.Store(true)
	}
}

// Hurried reports whether others wait.
func (s *Stale) Hurried() bool { return s.hurried != nil && s.hurried.Load() }

// Concerns reports whether changes of a namespace are cleaned.
func (s *Stale) Concerns(namespace string) bool { return s.found[namespace] != nil }

// Begin returns which flows have gone stale by changes of some namespaces since their last End. The caller calls it when the
// kernel has everything that was Set: before that, the old rules could still make flows. Until the End, a namespace has no other one.
func (t *Tracker) Begin(namespaces ...string) Stale {
	found, all := counters(namespaces), 0
	for _, namespace := range namespaces {
		all += len(t.suspects[namespace])
	}
	list := make([]suspect, 0, all)
	for namespace, n := range found {
		for f, is := range t.suspects[namespace] {
			if !is.forgotten {
				list = append(list, suspect{f, is.target(n)})
			}
		}
	}
	list = t.addSuccessors(list)
	alike, taken := t.take(found)
	return Stale{
		targets: index{single: list}, unanswered: index{alike: alike}, revision: t.revision, taken: taken, found: found, hurried: &atomic.Bool{},
	}
}

func (is *tracked) target(found *int) target {
	if is.port == nil {
		return target{removed: true, changed: &is.changed, found: found}
	}
	return target{port: is.port, limited: is.limited, by: is.by, changed: &is.changed, found: found}
}

// addSuccessors adds the node ports, ranges and frontends in a range that may serve flows of removed frontends by now. A cleaning
// of another namespace may have covered them already.
func (t *Tracker) addSuccessors(list []suspect) []suspect {
	removed, at := map[Frontend]bool{}, map[Frontend]bool{} // by Frontend.allPorts, where frontends were removed; true: a range
	among := t.elsewhere
	for i := range list {
		f := list[i].Frontend
		if !list[i].removed {
			continue
		}
		if removed[f] = true; f.EndPort != 0 {
			among = t.frontends
		}
		for _, addr := range t.addresses(f) {
			key, same := f.allPorts(addr), f
			at[key] = at[key] || f.EndPort != 0
			same.Addr = addr
			if is := t.frontends[same]; is != nil && is.port != nil { // beside a node port
				list = append(list, suspect{same, is.target(new(int))})
			}
		}
	}
	if len(removed) == 0 {
		return list
	}
	for f, is := range among { // one tenant can have 250,000 that are nowhere else
		if is.port != nil && slices.ContainsFunc(t.addresses(f), func(addr netip.Addr) bool {
			one := f
			one.Addr = addr
			ranges, some := at[f.allPorts(addr)]
			return some && (ranges || f.EndPort != 0 || removed[one])
		}) {
			list = append(list, suspect{f, is.target(new(int))}) // not if it is listed
		}
	}
	return list
}

// addresses are those at which a frontend answers.
func (t *Tracker) addresses(f Frontend) []netip.Addr {
	if f.Addr.IsValid() {
		return []netip.Addr{f.Addr}
	}
	return t.nodePortAddrs
}

// index finds what is known of the frontend to which a flow goes. What is not settled gives way to others at the same place.
// A cleaning makes it of the lists when it asks first: one tenant can have 250,000 frontends, and the loop must not wait for that.
type index struct {
	single []suspect
	alike  []suspects
	at     map[Frontend]target
	ranges map[Frontend]rangesAt // by Frontend.allPorts
}

// suspect is a frontend that may have stale flows.
type suspect struct {
	Frontend
	target
}

// suspects are several of which the same is known.
type suspects struct {
	frontends []Frontend
	target
}

// fill makes the index of the lists.
func (x *index) fill() {
	if x.at != nil {
		return
	}
	at := make(map[Frontend]target, len(x.single))
	add := func(f Frontend, t target) {
		if before, known := at[f]; !known || before.removed {
			at[f] = t
		}
	}
	for _, of := range x.single {
		add(of.Frontend, of.target)
	}
	for _, of := range x.alike {
		for _, f := range of.frontends {
			if f.TCP || of.look != nil { // endpoints are left out of TCP alone
				add(f, of.target)
			}
		}
	}
	*x = indexOf(at)
}

// rangesAt are ranges in the order of their first ports: a tenant can have thousands. Of those that are settled, only one has
// a port. Others may overlap with these and each other; last has the largest last port of others so far.
type rangesAt struct {
	settled, others []Frontend
	last            []uint16
}

func indexOf(at map[Frontend]target) index {
	x := index{at: at, ranges: map[Frontend]rangesAt{}}
	for f, v := range at {
		if f.EndPort == 0 {
			continue
		}
		r := x.ranges[f.allPorts(f.Addr)]
		if !v.removed {
			r.settled = append(r.settled, f)
		} else {
			r.others = append(r.others, f)
		}
		x.ranges[f.allPorts(f.Addr)] = r
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
func (x *index) within(to Frontend) (found Frontend, ok bool) {
	r := x.ranges[to.allPorts(to.Addr)]
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
func (x *index) find(f Flow, nodePortAddrs map[netip.Addr]bool) (v target, is Flow, ok bool) {
	x.fill()
	to := Frontend{Addr: f.Dst.Addr(), Port: f.Dst.Port(), Family: state.FamilyOf(f.Dst.Addr()), TCP: f.TCP, SCTP: f.SCTP}
	v, ok = x.at[to]
	if (!ok || v.removed) && nodePortAddrs[to.Addr] {
		nodePort := to
		nodePort.Addr = netip.Addr{}
		if other, found := x.at[nodePort]; found {
			v, ok = other, true
		}
	}
	if !ok || v.removed {
		if r, found := x.within(to); found {
			return x.at[r], f.atFirstPort(r.Port), true
		}
	}
	return v, f, ok
}

// target is a frontend that may have stale flows.
type target struct {
	removed bool
	by      engine   // who serves it
	limited bool     // to the sources of the port
	port    *udpPort // that serves it
	// Of connections without an answer, those to endpoints that are left out are deleted, or those that the look finds.
	leftOut []netip.AddrPort // sorted
	look    *look            // nil: leftOut counts
	changed *atomic.Uint64   // the Tracker's revision when the frontend changed last
	found   *int             // of its namespace
}

// Causes divides what a cleaning took among the namespaces: as much as the flows at their frontends, and equal parts of the
// walk over the table, which takes as long as flowsOfWalk flows.
func (s *Stale) Causes(took time.Duration) map[string]time.Duration {
	all := flowsOfWalk
	for _, n := range s.found {
		all += *n
	}
	causes := make(map[string]time.Duration, len(s.found))
	for namespace, n := range s.found {
		part := float64(flowsOfWalk)/float64(len(s.found)) + float64(*n)
		causes[namespace] = time.Duration(float64(took) * part / float64(all))
	}
	return causes
}

const flowsOfWalk = 5000

// unansweredFilters find the connections of a family that have no answer. The kernel walks over its whole table for each, so that
// there is none for a protocol without need.
func (s *Stale) unansweredFilters(family state.Family) (list []filter) {
	s.unanswered.fill()
	for f := range s.unanswered.at {
		of := filter{protocol: unix.IPPROTO_TCP, mask: statusSeenReply, partial: true}
		if f.SCTP {
			of.protocol = unix.IPPROTO_SCTP
		}
		if f.Family == family && !slices.Contains(list, of) {
			list = append(list, of)
		}
	}
	return list
}

// frontends lists the frontends of a family and a protocol that may have stale flows.
func (s *Stale) frontends(family state.Family, tcp bool) (list []Frontend) {
	s.targets.fill()
	for f := range s.targets.at {
		if f.Family == family && f.TCP == tcp {
			list = append(list, f)
		}
	}
	return list
}

// judge returns how many flows of the namespace were found, if a flow is stale; nil: it is not. It skips frontends that changed
// since the Tracker made s: the kernel may have newer rules already, and flows of these rules may go to endpoints that s does not
// know. The next cleaning looks at them. The Tracker records a change before the kernel gets the new rules, so judge knows of it
// before it sees a flow of the new rules.
//
// A removed frontend may have the address and port of a node port, which serves its flows then.
func (s *Stale) judge(f Flow, nodePortAddrs map[netip.Addr]bool) *int {
	t, f, ok := s.targets.find(f, nodePortAddrs)
	if !ok {
		return nil
	}
	if *t.found++; t.stale(f) && t.changed.Load() <= s.revision {
		return t.found
	}
	return nil
}

// isUnanswered reports whether a connection without an answer is to be deleted, and notes it for the next look.
func (s *Stale) isUnanswered(e *entry, nodePortAddrs map[netip.Addr]bool) bool {
	if e.answered() {
		return false
	}
	t, f, ok := s.unanswered.find(e.Flow, nodePortAddrs)
	if !ok {
		return false
	}
	*t.found++
	if t.look == nil {
		return contains(t.leftOut, f.Reply)
	}
	ours := f.Reply != f.Dst || f.Zone == 0 && !t.removed // translated, or past a frontend
	return ours && e.opening() && (t.removed || !t.look.lists(f.Reply)) && t.look.finds(string(e.key))
}

func contains(sorted []netip.AddrPort, at netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(sorted, at, netip.AddrPort.Compare)
	return found
}

func (t *target) stale(f Flow) bool {
	good := !t.removed && contains(t.port.serving, f.Reply)
	translated := f.Reply != f.Dst
	if f.TCP {
		return translated && f.DNAT && !good // others are not ours
	}
	if !t.admits(f.Src) {
		return translated || f.Zone == 0 // see below
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

// admits reports whether the source ranges let a client in.
func (t *target) admits(client netip.Addr) bool {
	if !t.limited {
		return true
	}
	i, first := slices.BinarySearchFunc(t.port.sources, client, func(r netip.Prefix, a netip.Addr) int { return r.Addr().Compare(a) })
	return first || i > 0 && t.port.sources[i-1].Contains(client)
}
