package conntrack

import (
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Tracker finds out at which UDP frontends flows can have gone stale since they were last cleaned, and which TCP endpoints
// were left out. For each frontend it
// knows two things: which port serves it now, and whether a change since the last cleaning can have made flows stale.
// A cleaning judges flows by the port that serves the frontend now, so earlier states need not be remembered.
//
// A new Tracker knows no frontends. The first cleaning therefore looks at every frontend, because flows may have gone
// stale while no proxy ran.
//
// Its memory follows the number of frontends, not the number of changes.
//
// A Tracker is not for use by several goroutines at once. Another goroutine may use a Stale that the Tracker returned:
// the kernel needs about 20 ms to walk its table even when it is empty, and no pass should wait for that.
type Tracker struct {
	services  map[state.Name][]*udpPort // as set last
	frontends map[Frontend]*tracked     // those that a port serves, and the suspect ones
	suspects  map[Frontend]*tracked     // those to look at
	adopted   map[Frontend]bool         // see Adopt
	removed   int                       // how many frontends no port serves; all of them are suspect
	removals  map[string]*int           // those of removed that each namespace had last
	leftOut   leftOuts
	revision  uint64 // counts calls of Set
	looked    uint64 // the revision that the last Stale covers
	forgotten int

	nodePortAddrs []netip.Addr // at which node ports answer
}

// tracked is what a Tracker knows of a frontend.
type tracked struct {
	port    *udpPort // that serves it; nil: it was removed
	by      engine   // who serves it
	suspect bool
	removal *int          // of the namespace that took it away last; nil: none did
	changed atomic.Uint64 // the revision of its last change; a running cleaning reads it
}

// udpPort is what a Tracker knows of a UDP port in one family.
type udpPort struct {
	frontends []servedFrontend
	tracked   []*tracked       // what the Tracker knows of each frontend
	serving   []netip.AddrPort // sorted; shared with the plan
}

type servedFrontend struct {
	Frontend
	by engine
}

// engine is who serves a frontend.
type engine uint8

const (
	byNFT engine = iota
	byIPVS
	unchanged // by IPVS without NAT
)

func engineOf(f *plan.Frontend) engine {
	switch {
	case f.Unchanged:
		return unchanged
	case f.IPVS:
		return byIPVS
	}
	return byNFT
}

// maxRemoved bounds how many removed frontends wait to be cleaned: 131,072 take about 10 MB. One namespace can have a
// quarter of them: a tenant who deletes a hundred thousand frontends at once must not have those of others forgotten.
const (
	maxRemoved         = 1 << 17
	maxRemovedOfTenant = maxRemoved / 4
)

// NewTracker returns a Tracker that knows only the frontends of an earlier process. The first cleaning treats those
// that no Service has by then as removed.
func NewTracker(former ...Frontend) *Tracker {
	t := &Tracker{
		services: map[state.Name][]*udpPort{}, frontends: map[Frontend]*tracked{}, suspects: map[Frontend]*tracked{}, removals: map[string]*int{},
		leftOut: leftOuts{services: map[state.Name]*leftOut{}},
	}
	for _, f := range former {
		t.note(f, t.add(f), true)
	}
	return t
}

// Adopt tells that IPVS carries on flows of these frontends for an earlier proxy, whatever serves them now. It comes
// before the first Set.
func (t *Tracker) Adopt(list []Frontend) {
	t.adopted = make(map[Frontend]bool, len(list))
	for _, f := range list {
		t.adopted[f] = true
	}
}

// add returns a frontend that no port serves yet.
func (t *Tracker) add(f Frontend) *tracked {
	is := &tracked{}
	t.frontends[f] = is
	t.removed++
	return is
}

// Set records a Service's new plan; nil: the Service is gone. When the pass does not reach the kernel, nothing has to
// be undone: Done forgets only what a cleaning has looked at.
func (t *Tracker) Set(n state.Name, p *plan.Service) {
	t.leftOut.set(n, p, &t.revision)
	before, after := t.services[n], udpPorts(p)
	if len(before)+len(after) == 0 {
		return
	}
	t.revision++
	for i, port := range after {
		var old *udpPort
		if i < len(before) && slices.Equal(before[i].frontends, port.frontends) {
			old = before[i]
		}
		t.serve(port, old)
	}
	for _, port := range before {
		t.withdraw(port, n.Namespace)
	}
	if len(after) == 0 {
		delete(t.services, n)
	} else {
		t.services[n] = after
	}
}

func udpPorts(p *plan.Service) (out []*udpPort) {
	if p == nil {
		return nil
	}
	for i := range p.Ports {
		port := &p.Ports[i]
		tcp := port.Protocol == state.TCP && port.Resets
		if port.Protocol != state.UDP && !tcp {
			continue
		}
		made := &udpPort{frontends: make([]servedFrontend, 0, len(port.Frontends)), serving: port.Serving}
		for j := range port.Frontends {
			if f := &port.Frontends[j]; !tcp || !f.IPVS { // IPVS has its own entry for a TCP connection
				made.frontends = append(made.frontends, servedFrontend{frontendOf(port, f), engineOf(f)})
			}
		}
		out = append(out, made)
	}
	return out
}

// serve gives a port its frontends. Another port, also one of another Service, may have had them until now. The port
// old, if any, is what the port was before, with the same frontends.
func (t *Tracker) serve(port, old *udpPort) {
	port.tracked = make([]*tracked, len(port.frontends))
	var was *udpPort
	changed, look := true, true
	for i, f := range port.frontends {
		is := t.find(f.Frontend, i, old)
		port.tracked[i] = is
		// All frontends of a port usually had the same port before, and ports with many endpoints take long to compare.
		if is.port != was {
			was = is.port
			changed, look = !port.same(was), needsLook(was, port)
		}
		if is.port == nil {
			t.endRemoval(is)
		}
		by := f.by
		if by != byNFT {
			delete(t.adopted, f.Frontend) // what IPVS has for it is this proxy's own by now
		} else if t.adopted[f.Frontend] {
			by = byIPVS
		}
		moved, left := is.by != by, is.by > by
		is.port, is.by = port, by
		if changed || moved {
			t.note(f.Frontend, is, look || left)
		}
	}
}

// find returns the frontend f, which is number i of the port old. While old still serves it, nothing has to be looked
// up.
func (t *Tracker) find(f Frontend, i int, old *udpPort) *tracked {
	if old != nil && old.tracked[i].port == old {
		return old.tracked[i]
	}
	if is := t.frontends[f]; is != nil {
		return is
	}
	return t.add(f)
}

// withdraw takes away the frontends that a port of a namespace still has.
func (t *Tracker) withdraw(port *udpPort, namespace string) {
	count := t.removals[namespace]
	if count == nil {
		count = new(int)
		t.removals[namespace] = count
	}
	for i := range port.frontends {
		f, is := port.frontends[i].Frontend, port.tracked[i]
		if is.port != port {
			continue
		}
		is.port = nil
		t.removed++
		if f.TCP { // open connections go on when a Service is deleted, or does not want them reset any more
			is.changed.Store(t.revision)
			t.forget(f, is)
			continue
		}
		*count++
		is.removal = count
		t.note(f, is, true)
		t.noteNodePort(f)
		if t.removed > maxRemoved || *count > maxRemovedOfTenant {
			t.forget(f, is)
			t.forgotten++
		}
	}
}

// noteNodePort notes that a frontend is gone whose address and port may be those of a node port, which then serves its
// flows.
func (t *Tracker) noteNodePort(f Frontend) {
	if !f.Addr.IsValid() || !slices.Contains(t.nodePortAddrs, f.Addr) {
		return
	}
	f.Addr = netip.Addr{}
	if is := t.frontends[f]; is != nil {
		t.note(f, is, true)
	}
}

// note records that a frontend changed. With look, the change itself can have made flows stale. Of a frontend that is
// suspect already, a running cleaning skips the flows from now on, and the next one looks at them.
func (t *Tracker) note(f Frontend, is *tracked, look bool) {
	is.changed.Store(t.revision)
	if look && !is.suspect {
		is.suspect = true
		t.suspects[f] = is
	}
}

// forget lets go of a frontend that no port serves.
func (t *Tracker) forget(f Frontend, is *tracked) {
	delete(t.frontends, f)
	delete(t.suspects, f)
	t.endRemoval(is)
}

// endRemoval notes that a removed frontend is served again or forgotten.
func (t *Tracker) endRemoval(is *tracked) {
	t.removed--
	if is.removal != nil {
		*is.removal--
	}
}

func (p *udpPort) same(other *udpPort) bool {
	return other != nil && slices.Equal(p.serving, other.serving)
}

// needsLook reports whether flows of a frontend can have gone stale when the port that serves it changes. They can when
//   - the frontend is new,
//   - an endpoint went,
//   - there was no endpoint before, so that flows went nowhere, and now there is one.
//
// They also can when IPVS does not serve the frontend any more, or with NAT again, which serve knows.
func needsLook(before, after *udpPort) bool {
	if before == nil {
		return true
	}
	was, is := before.serving, after.serving
	if len(was) == 0 {
		return len(is) > 0
	}
	for _, endpoint := range was {
		at, found := slices.BinarySearchFunc(is, endpoint, netip.AddrPort.Compare)
		if !found {
			return true
		}
		is = is[at+1:]
	}
	return false
}

// Stale returns which flows have gone stale since the last Done. The caller calls it when the kernel has everything
// that was Set: before that, the old rules could still make flows.
func (t *Tracker) Stale() Stale {
	t.looked = t.revision
	targets := make(map[Frontend]target, len(t.suspects))
	for f, is := range t.suspects {
		it := target{removed: is.port == nil, changed: &is.changed}
		if is.port != nil {
			it.good, it.by = is.port.serving, is.by
		}
		targets[f] = it
	}
	return t.newStale(targets)
}

func (t *Tracker) newStale(targets map[Frontend]target) Stale {
	return Stale{targets: indexOf(targets, isServed), unanswered: indexOf(t.leftOut.unanswered(), always), revision: t.revision}
}

// LeftOut is Stale for connections to endpoints that were left out, and for nothing else. Call DoneLeftOut after it.
func (t *Tracker) LeftOut() Stale {
	if !t.leftOut.wait {
		return Stale{}
	}
	t.looked = t.revision
	return t.newStale(nil)
}

// DoneLeftOut records that the connections that the last LeftOut or Stale listed are deleted.
func (t *Tracker) DoneLeftOut() { t.leftOut.done(t.looked) }

// Doubt makes the next cleaning look at all frontends. The kernel did not have their rules for a time, because another
// process had changed them: flows that began then lead nowhere, or to an endpoint that nobody chose.
func (t *Tracker) Doubt() {
	t.revision++
	for f, is := range t.frontends {
		t.note(f, is, true)
	}
}

// Done records that the last Stale was cleaned completely. Frontends that changed since then stay suspect.
func (t *Tracker) Done() {
	for f, is := range t.suspects {
		switch {
		case is.changed.Load() > t.looked:
		case is.port == nil:
			t.forget(f, is)
		default:
			is.suspect = false
			delete(t.suspects, f)
		}
	}
	t.DoneLeftOut()
	// A map keeps the size that it once had, and the first pass sees every frontend.
	if len(t.suspects) == 0 {
		t.suspects = map[Frontend]*tracked{}
	}
	maps.DeleteFunc(t.removals, func(_ string, n *int) bool { return *n == 0 })
	if len(t.frontends) == 0 {
		t.frontends = map[Frontend]*tracked{}
	}
}

// Forgotten returns how many removed frontends were not recorded because too many waited to be cleaned. Their flows
// stay until their clients stop sending. The count starts again at 0.
func (t *Tracker) Forgotten() int {
	n := t.forgotten
	t.forgotten = 0
	return n
}

// SetNodePortAddresses records at which addresses node ports answer. Each node port at an address that is gone counts as
// a removed frontend. At an address that is new, clients may have been sending before it answered.
func (t *Tracker) SetNodePortAddresses(addrs []netip.Addr) {
	gone, come := notIn(addrs, t.nodePortAddrs), notIn(t.nodePortAddrs, addrs)
	t.nodePortAddrs = slices.Clone(addrs)
	if len(gone)+len(come) == 0 {
		return
	}
	t.revision++
	var nodePorts []Frontend
	for f := range t.frontends {
		if !f.Addr.IsValid() {
			nodePorts = append(nodePorts, f)
		}
	}
	for _, f := range nodePorts {
		if slices.ContainsFunc(come, func(a netip.Addr) bool { return state.FamilyOf(a) == f.Family }) {
			t.note(f, t.frontends[f], true)
		}
		for _, a := range gone {
			if state.FamilyOf(a) == f.Family {
				t.endNodePort(Frontend{Addr: a, Port: f.Port, Family: f.Family})
			}
		}
	}
}

// endNodePort notes that a node port does not answer at an address any more. Another frontend may have that address and
// port.
func (t *Tracker) endNodePort(f Frontend) {
	is := t.frontends[f]
	switch {
	case is != nil && is.port != nil:
		return
	case is == nil && t.removed >= maxRemoved:
		t.forgotten++
		return
	case is == nil:
		is = t.add(f)
	}
	t.note(f, is, true)
}

// notIn returns the addresses of a list that the other list lacks.
func notIn(other, list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return slices.Contains(other, a) })
}
