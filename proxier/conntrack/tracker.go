package conntrack

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Tracker remembers the UDP ports as they were when flows were last cleaned, and what has changed since. It starts out
// knowing nothing, so that the first cleaning looks at every frontend: what happened while nobody was here.
//
// Not for use by several goroutines at once. A Stale that it returned may be used by another goroutine: walking the
// kernel's table takes some 20 ms even when it is empty, for which no pass should wait.
type Tracker struct {
	done     map[state.Name][]udpPort
	changed  map[state.Name]change
	revision uint64
	looked   uint64     // revision up to which the last Stale took changes in
	former   []Frontend // of an earlier process, with flows; until the first Done
	later    *later     // of the last Stale; nil: nobody is cleaning
}

// change is a Service as it is now.
type change struct {
	revision uint64
	ports    []udpPort // nil: the Service is gone, or has no UDP ports any more
	// again: it changed again before its first change was cleaned. What it was in between may have made flows as well, so
	// comparing the ends is not enough. These frontends came and may have gone before and after the last Stale.
	again        bool
	past, recent []Frontend
}

// udpPort is what is remembered of a UDP port in one family.
type udpPort struct {
	frontends []Frontend
	serving   []netip.AddrPort // sorted; shared with the plan
	ipvs      bool             // served by IPVS
}

// NewTracker returns a Tracker that knows nothing but frontends of an earlier process: those of them that nothing has
// when it first looks were removed meanwhile.
func NewTracker(former ...Frontend) *Tracker {
	return &Tracker{done: map[state.Name][]udpPort{}, changed: map[state.Name]change{}, former: former}
}

// Set takes note of a Service's plan; nil: it is gone. Nothing is forgotten before Done, so a pass that did not reach
// the kernel needs no undoing.
func (t *Tracker) Set(n state.Name, p *plan.Service) {
	ports := udpPorts(p)
	_, was := t.done[n]
	c, pending := t.changed[n]
	if !was && !pending && len(ports) == 0 {
		return
	}
	c.again, c.recent = pending, withFrontends(c.recent, c.ports)
	t.revision++
	c.revision, c.ports = t.revision, ports
	t.changed[n] = c
	t.later.add(ports)
}

// withFrontends adds the frontends of ports, each once: a Service that flaps while nothing can be cleaned must not pile up.
func withFrontends(list []Frontend, ports []udpPort) []Frontend {
	for i := range ports {
		for _, f := range ports[i].frontends {
			if !slices.Contains(list, f) {
				list = append(list, f)
			}
		}
	}
	return list
}

// appendFrontends is for lists in which some may be twice: looking for each would be quadratic where every Service is listed.
func appendFrontends(list []Frontend, ports []udpPort) []Frontend {
	for i := range ports {
		list = append(list, ports[i].frontends...)
	}
	return list
}

func udpPorts(p *plan.Service) (out []udpPort) {
	if p == nil {
		return nil
	}
	for i := range p.Ports {
		port := &p.Ports[i]
		if port.Protocol != state.UDP {
			continue
		}
		frontends := make([]Frontend, 0, len(port.Frontends))
		for _, fe := range port.Frontends {
			frontends = append(frontends, Frontend{Addr: fe.Addr, Port: fe.Port, Family: port.Family})
		}
		out = append(out, udpPort{frontends: frontends, serving: port.Serving, ipvs: port.IPVS})
	}
	return out
}

// Stale says which flows have gone stale since the last Done. Call it when the kernel has the changes: before that, new
// flows could still be made by the old rules.
func (t *Tracker) Stale() Stale {
	t.looked = t.revision
	if len(t.changed) == 0 && len(t.former) == 0 {
		return Stale{}
	}
	// Frontends are compared across all Services: one may have passed from one Service to another.
	before, after := map[Frontend]*udpPort{}, map[Frontend]*udpPort{}
	var unsteady []Frontend
	for n, c := range t.changed {
		enter(before, t.done[n])
		enter(after, c.ports)
		if c.again {
			c.past, c.recent = append(c.past, c.recent...), nil
			t.changed[n] = c
			unsteady = append(appendFrontends(appendFrontends(unsteady, t.done[n]), c.ports), c.past...)
		}
	}
	targets := map[Frontend]target{}
	for f, good := range after {
		if was, existed := before[f]; !existed || needsLook(was, good) {
			targets[f] = target{good: good.serving, ipvs: good.ipvs}
		}
	}
	for _, f := range t.former {
		if _, exists := after[f]; !exists {
			targets[f] = target{removed: true}
		}
	}
	for f := range before {
		if _, exists := after[f]; !exists {
			targets[f] = target{removed: true}
		}
	}
	for _, f := range unsteady {
		targets[f] = target{removed: true}
		if good, exists := after[f]; exists {
			targets[f] = target{good: good.serving, ipvs: good.ipvs}
		}
	}
	t.later = &later{frontends: map[Frontend]struct{}{}}
	return Stale{targets, t.later}
}

func enter(m map[Frontend]*udpPort, ports []udpPort) {
	for i := range ports {
		for _, f := range ports[i].frontends {
			m[f] = &ports[i]
		}
	}
}

// needsLook tells whether flows of a frontend that stayed can have gone stale: an endpoint went, or there are endpoints
// now and were none, and with them flows that went nowhere, or IPVS has let go of it.
func needsLook(before, after *udpPort) bool {
	was, is := before.serving, after.serving
	if before.ipvs && !after.ipvs {
		return true
	}
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

// Done says that the last Stale was cleaned, or was empty. Changes that were set after it was made stay.
func (t *Tracker) Done() {
	t.former, t.later = nil, nil
	for n, c := range t.changed {
		if c.revision > t.looked {
			// What the Service was at the time of that Stale is among the recent frontends.
			delete(t.done, n)
			c.past = nil
			t.changed[n] = c
			continue
		}
		delete(t.changed, n)
		if len(c.ports) == 0 {
			delete(t.done, n)
		} else {
			t.done[n] = c.ports
		}
	}
	if len(t.changed) == 0 {
		// A map keeps the size it once had, and the first pass sees every Service.
		t.changed = map[state.Name]change{}
	}
}
