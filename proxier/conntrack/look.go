package conntrack

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// A connection without an answer may be deleted: neither end has one yet, and the next packet of the client begins another, to an
// endpoint of that time. Until then it keeps its way for as long as the client repeats its packet: to an endpoint that is left out
// or gone, whose address another pod may get; or past a frontend that came later.
//
// Those to endpoints that a plan has left out are deleted at once. Of the others, a look suspects those that the rules would not
// begin, and the next one, a second later, deletes those that it finds again: an answer that was under way has arrived by then, and
// what new rules began in between was not suspected before. If a look suspects none, there is no second one.
//
// IPVS has its own entry for a connection that it carries, and sends the client's next packet elsewhere when the endpoint
// has weight 0 or is gone (net.ipv4.vs.expire_nodest_conn). While connection tracking has the connection as well, IPVS drops that
// packet first, and a client that repeats its packets after 1, 2 and 4 seconds loses 4 seconds.

// lookPeriod is how much time passes at least between two looks.
const lookPeriod = time.Second

// looks has where connections without an answer are to be looked for.
type looks struct {
	known   map[state.Name]*known // Services with frontends of TCP or SCTP
	leftOut map[state.Name]uint64 // those with an endpoint that was left out, at a revision
	waiting map[state.Name]*look
	open    bool      // Look was called when a look was due
	next    time.Time // no look comes earlier
}

// known is a Service as set last. The slices are shared with the store.
type known struct {
	frontends []Frontend
	slices    []*state.Slice
	leftOut   []netip.AddrPort // sorted
}

// look is a Service where to look. The first three belong to the cleaning of its namespace that is under way.
type look struct {
	slices           []*state.Slice
	listed           listed          // from slices; nil: nothing was asked yet, as at nearly all Services
	suspects, before map[string]bool // connections that this look suspects, and those of the last one
	gone             []Frontend      // that the Service had
	once, taken      int             // how many of gone, the first ones, were looked at by the last look, and are by this one
	again            bool            // the Service has changed since this one began
}

// knownOf describes a plan. IPVS without NAT passes on connections whose answers the kernel never sees. Endpoints that accept
// connections are not left out here: to look for connections without an answer, the kernel walks over its whole table.
func knownOf(p *plan.Service, list []*state.Slice) *known {
	is := &known{slices: list}
	if p == nil {
		return is
	}
	for i := range p.Ports {
		for j := range p.Ports[i].Frontends {
			if f := &p.Ports[i].Frontends[j]; p.Ports[i].Protocol != state.UDP && !f.Unchanged {
				is.frontends = append(is.frontends, frontendOf(&p.Ports[i], f))
			}
		}
	}
	for i := range p.Choices {
		if c := &p.Choices[i]; c.Use == plan.Ejected && c.Protocol == state.TCP && !c.Accepts {
			is.leftOut = append(is.leftOut, c.At)
		}
	}
	return is
}

// record notes a Service, and counts the revision up if a cleaning has to notice.
func (l *looks) record(n state.Name, is *known, revision *uint64) {
	was := cmp.Or(l.known[n], &known{})
	if len(was.frontends)+len(is.frontends) == 0 {
		return
	}
	if l.known[n] = is; len(is.frontends) == 0 {
		delete(l.known, n)
		is.leftOut = nil
	}
	if len(is.leftOut) == 0 {
		delete(l.leftOut, n)
	} else if slices.ContainsFunc(is.leftOut, func(at netip.AddrPort) bool { return !contains(was.leftOut, at) }) {
		*revision++
		l.leftOut[n] = *revision
	}
	gone := without(was.frontends, is.frontends)
	if len(gone)+len(without(is.frontends, was.frontends)) > 0 || anyGone(was.slices, is.slices) {
		l.wait(n, gone)
	}
}

// wait has a Service looked at that has lost some frontends.
func (l *looks) wait(n state.Name, gone []Frontend) {
	w := cmp.Or(l.waiting[n], &look{})
	w.again, w.gone, l.waiting[n] = true, append(w.gone, gone...), w
}

// Look returns the namespaces where Stale looks for connections without an answer, besides those that wait for a cleaning; and when
// to call it again; zero: after a change.
func (l *looks) Look(now time.Time) (namespaces map[string]bool, next time.Time) {
	namespaces = map[string]bool{}
	if len(l.waiting) == 0 {
		return namespaces, next
	}
	if l.open = !now.Before(l.next); l.open {
		l.next = now.Add(lookPeriod)
		for n := range l.waiting {
			namespaces[n.Namespace] = true
		}
	}
	return namespaces, l.next
}

// take lists where some namespaces have connections to look for. Those that are found there are counted by namespace.
func (l *looks) take(found map[string]*int) (list []suspects, taken map[state.Name]*look) {
	taken = make(map[state.Name]*look, len(l.waiting))
	for n, w := range l.waiting {
		of, is := found[n.Namespace], cmp.Or(l.known[n], &known{})
		if of == nil || !l.open {
			continue
		}
		list = append(list, suspects{is.frontends, target{look: w, found: of}}, suspects{w.gone, target{removed: true, look: w, found: of}})
		w.slices, w.listed, w.suspects, w.taken, w.again, taken[n] = is.slices, nil, nil, len(w.gone), false, w
	}
	return list, taken
}

// takeLeftOut lists the frontends of Services with endpoints that were left out.
func (l *looks) takeLeftOut(found map[string]*int) (list []suspects) {
	for n := range l.leftOut {
		if of := found[n.Namespace]; of != nil {
			list = append(list, suspects{l.known[n].frontends, target{leftOut: l.known[n].leftOut, found: of}})
		}
	}
	return list
}

// done records that the connections are deleted that take or takeLeftOut listed.
func (l *looks) done(s *Stale) {
	if s.taken == nil {
		maps.DeleteFunc(l.leftOut, func(n state.Name, at uint64) bool { return at <= s.revision && s.Concerns(n.Namespace) })
	}
	for n, w := range s.taken {
		w.before, w.gone, w.once = w.suspects, w.gone[w.once:], w.taken-w.once
		if !w.again && len(w.before) == 0 {
			delete(l.waiting, n)
		}
	}
}

// without returns the frontends of a list that another one lacks.
func without(list, other []Frontend) []Frontend {
	if slices.Equal(list, other) {
		return nil
	}
	has := make(map[Frontend]bool, len(other))
	for _, f := range other {
		has[f] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(f Frontend) bool { return has[f] })
}

// anyGone reports whether later slices of a Service may lack an endpoint that earlier ones list as serving. One that moves from
// slice to slice counts as well, or one that comes in another order. Both lists are sorted by name.
func anyGone(was, is []*state.Slice) bool {
	return slices.ContainsFunc(was, func(old *state.Slice) bool {
		at, found := slices.BinarySearchFunc(is, old.Name, func(sl *state.Slice, name state.Name) int { return sl.Compare(name) })
		if !found || is[at] == old || !slices.Equal(is[at].Ports, old.Ports) {
			return !found || is[at] != old
		}
		left := is[at].Endpoints
		return slices.ContainsFunc(old.Endpoints, func(e state.Endpoint) bool {
			if !serves(&e) {
				return false
			}
			next := slices.IndexFunc(left, func(other state.Endpoint) bool { return other.Addr == e.Addr && serves(&other) })
			left = left[next+1:]
			return next < 0
		})
	})
}

func serves(e *state.Endpoint) bool { return e.Ready || e.Serving }

// listed has the ports at which slices list serving endpoints, by address. A tenant can write 20,000 ports for 1,000 addresses,
// so nobody multiplies them.
type listed map[netip.Addr][]map[uint16]bool

// maxListed is how many slices with an address are looked through for each connection.
const maxListed = 64

func listedIn(list []*state.Slice) listed {
	l := listed{}
	for _, sl := range list {
		ports := map[uint16]bool{}
		for _, p := range sl.Ports {
			ports[p.Port] = ports[p.Port] || p.Protocol != state.UDP
		}
		for i := range sl.Endpoints {
			if e := &sl.Endpoints[i]; serves(e) && len(l[e.Addr]) <= maxListed {
				l[e.Addr] = append(l[e.Addr], ports)
			}
		}
	}
	return l
}

// finds reports whether this look finds a connection that the last one has found. It remembers the others.
func (w *look) finds(key string) bool {
	if w.before[key] {
		return true
	}
	if w.suspects == nil {
		w.suspects = map[string]bool{}
	}
	w.suspects[key] = true
	return false
}

// lists reports whether an endpoint is to get connections.
func (w *look) lists(at netip.AddrPort) bool {
	if w.listed == nil {
		w.listed = listedIn(w.slices)
	}
	return w.listed.has(at)
}

// has reports whether an endpoint is listed. One whose address is in too many slices counts as listed.
func (l listed) has(at netip.AddrPort) bool {
	of := l[at.Addr()]
	return len(of) > maxListed || slices.ContainsFunc(of, func(ports map[uint16]bool) bool { return ports[at.Port()] })
}
