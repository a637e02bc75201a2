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
// Frontends wait for a cleaning by the namespaces that changed them, so that the cleaner can be fair: those of one namespace are
// cleaned together, however often they changed, and a namespace that changes all the time delays only itself.
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
	elsewhere map[Frontend]*tracked     // of these, node ports and ranges, which may have a place beside a frontend that they do not equal
	// suspects are those to look at, by the namespaces that changed them; "": the node did. Some may be forgotten since.
	suspects map[string]map[Frontend]*tracked
	adopted  map[Frontend]bool // see Adopt
	removed  int               // how many frontends no port serves; all of them are suspect
	removals map[string]*int   // those of removed that each namespace had last
	looks
	revision  uint64 // counts calls of Set
	forgotten int

	nodePortAddrs []netip.Addr // at which node ports answer
}

// tracked is what a Tracker knows of a frontend.
type tracked struct {
	port      *udpPort      // that serves it; nil: it was removed
	by        engine        // who serves it
	limited   bool          // to the sources of the port
	forgotten bool          // the Tracker does not know it any more
	removal   *int          // of the namespace that took it away last; nil: none did
	changed   atomic.Uint64 // the revision of its last change; a running cleaning reads it
}

// udpPort is what a Tracker knows of a UDP port in one family.
type udpPort struct {
	frontends []servedFrontend
	tracked   []*tracked       // what the Tracker knows of each frontend
	serving   []netip.AddrPort // sorted; shared with the plan
	sources   []netip.Prefix   // of the limited frontends: the clients that may use them; sorted, disjoint, and shared with the plan
}

type servedFrontend struct {
	Frontend
	by      engine
	limited bool
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
		services: map[state.Name][]*udpPort{}, frontends: map[Frontend]*tracked{}, elsewhere: map[Frontend]*tracked{}, suspects: map[string]map[Frontend]*tracked{}, removals: map[string]*int{},
		looks: looks{known: map[state.Name]*known{}, leftOut: map[state.Name]uint64{}, waiting: map[state.Name]*look{}},
	}
	for _, f := range former {
		t.note(f, t.add(f), true, "")
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
	if t.frontends[f] = is; f.EndPort != 0 || !f.Addr.IsValid() {
		t.elsewhere[f] = is
	}
	t.removed++
	return is
}

// Set records a Service's new plan and its slices; nil: the Service is gone. When the pass does not reach the kernel, nothing has to
// be undone: End forgets only what a cleaning has looked at.
func (t *Tracker) Set(n state.Name, p *plan.Service, list ...*state.Slice) {
	t.record(n, knownOf(p, list), &t.revision)
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
		t.serve(port, old, n.Namespace)
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
			f := &port.Frontends[j]
			limited := f.Firewalled && !tcp
			if limited {
				made.sources = f.Sources // all limited frontends of a port have the same ones
			}
			if !tcp || !f.IPVS { // IPVS has its own entry for a TCP connection
				made.frontends = append(made.frontends, servedFrontend{frontendOf(port, f), engineOf(f), limited})
			}
		}
		out = append(out, made)
	}
	return out
}

// serve gives a port its frontends. Another port, also one of another Service, may have had them until now. The port
// old, if any, is what the port was before, with the same frontends.
func (t *Tracker) serve(port, old *udpPort, namespace string) {
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
		moved, left := is.by != by || is.limited != f.limited, is.by > by || f.limited && !is.limited
		is.port, is.by, is.limited = port, by, f.limited
		if changed || moved {
			t.note(f.Frontend, is, look || left, namespace)
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
			t.forget(f, is, namespace)
			continue
		}
		*count++
		is.removal = count
		t.note(f, is, true, namespace)
		if t.removed > maxRemoved || *count > maxRemovedOfTenant {
			t.forget(f, is, namespace)
			t.forgotten++
		}
	}
}

// note records that a namespace changed a frontend. With look, the change itself can have made flows stale. Of a frontend that
// is suspect already, a running cleaning skips the flows from now on, and the next one looks at them.
func (t *Tracker) note(f Frontend, is *tracked, look bool, namespace string) {
	is.changed.Store(t.revision)
	if !look {
		return
	}
	if t.suspects[namespace] == nil {
		t.suspects[namespace] = map[Frontend]*tracked{}
	}
	t.suspects[namespace][f] = is
}

// forget deletes the record of a frontend that no port serves, and that a namespace changed last.
func (t *Tracker) forget(f Frontend, is *tracked, namespace string) {
	is.forgotten = true
	delete(t.frontends, f)
	delete(t.elsewhere, f)
	delete(t.suspects[namespace], f)
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
	return other != nil && slices.Equal(p.serving, other.serving) && slices.Equal(p.sources, other.sources)
}

// needsLook reports whether flows of a frontend can have gone stale when the port that serves it changes. They can when
//   - the frontend is new,
//   - an endpoint went,
//   - the source ranges are others,
//   - there was no endpoint before, so that flows went nowhere, and now there is one.
//
// They also can when IPVS does not serve the frontend any more, or with NAT again, or when it gets source ranges, which serve knows.
func needsLook(before, after *udpPort) bool {
	if before == nil || !slices.Equal(before.sources, after.sources) {
		return true
	}
	was, is := before.serving, after.serving
	if len(was) == 0 {
		return len(is) > 0
	}
	for _, endpoint := range was {
		if _, found := slices.BinarySearchFunc(is, endpoint, netip.AddrPort.Compare); !found {
			return true
		}
	}
	return false
}

// Waiting returns the namespaces whose changes can have made flows stale since they were cleaned.
func (t *Tracker) Waiting() (namespaces []string) {
	for namespace, list := range t.suspects {
		for f, is := range list {
			if !is.forgotten {
				namespaces = append(namespaces, namespace)
				break
			}
			delete(list, f)
		}
		if len(list) == 0 { // a map keeps the size that it once had
			delete(t.suspects, namespace)
		}
	}
	return namespaces
}

// BeginLeftOut is Begin for connections to endpoints that were left out.
func (t *Tracker) BeginLeftOut(namespaces ...string) Stale {
	found := counters(namespaces)
	return Stale{unanswered: index{alike: t.takeLeftOut(found)}, revision: t.revision, found: found, hurried: &atomic.Bool{}}
}

func counters(namespaces []string) map[string]*int {
	found := make(map[string]*int, len(namespaces))
	for _, namespace := range namespaces {
		found[namespace] = new(int)
	}
	return found
}

// WaitingLeftOut returns the namespaces of endpoints that were left out since their last End.
func (t *Tracker) WaitingLeftOut() map[string]bool {
	namespaces := map[string]bool{}
	for n := range t.leftOut {
		namespaces[n.Namespace] = true
	}
	return namespaces
}

// Doubt makes the next cleaning look at all frontends. The kernel did not have their rules for a time, because another
// process had changed them: flows that began then lead nowhere, or to an endpoint that nobody chose.
func (t *Tracker) Doubt() {
	t.revision++
	delete(t.suspects, "")
	for f, is := range t.frontends {
		t.note(f, is, true, "")
	}
	for n := range t.known {
		t.wait(n, nil)
	}
}

// End records that everything was cleaned that Begin or BeginLeftOut returned. Frontends that changed since then stay suspect.
func (t *Tracker) End(s *Stale) {
	for namespace := range s.found {
		if s.taken == nil {
			break
		}
		left := map[Frontend]*tracked{} // to delete the others takes longer
		for f, is := range t.suspects[namespace] {
			switch {
			case is.changed.Load() > s.revision:
				left[f] = is
			case is.port == nil && !is.forgotten:
				t.forget(f, is, namespace)
			}
		}
		t.suspects[namespace] = left
	}
	t.done(s)
	t.Waiting() // forgets namespaces of which nothing waits
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
			t.note(f, t.frontends[f], true, "")
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
	t.note(f, is, true, "")
}

// notIn returns the addresses of a list that the other list lacks.
func notIn(other, list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return slices.Contains(other, a) })
}
