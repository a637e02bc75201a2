package report

import (
	"maps"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Observer is notified of what the loop does. The loop calls its methods; they must not block.
type Observer interface {
	// Pending reports since when changes wait for the kernel. Changes before the first sync do not count.
	Pending(since time.Time)
	PassDone(Pass)
	Problems(Problems)
	FlowsCleaned([]conntrack.Result)
	Repaired(Repair)
	AsWanted(at time.Time) // a check found the kernel as wanted, and no change waits
}

// Pass is what one pass did.
type Pass struct {
	Started  time.Time
	Duration time.Duration
	Services int           // planned in this pass
	Planning time.Duration // the part of Duration until the engines had all plans
	Pauses   int           // namespaces that have to wait from now on, because they changed too much
	Result   dataplane.Result
	// Totals count what each engine serves after the pass.
	Totals dataplane.AllTotals
	// Triggers are the times at which the endpoint controller noted the changes that this pass brought into the kernel.
	Triggers []Trigger
	// Latencies say how long the changes took that the kernel has since this pass, from when the store had them.
	Latencies []state.Latency
	// HealthChecks are the healthCheckNodePort servers wanted from now on; nil: as before.
	HealthChecks *HealthChecks
	// NodeEligible is false while the Node is about to go, for the reason in Leaving.
	NodeEligible bool
	Leaving      string
}

// Problems names what cannot be honored.
type Problems struct {
	Changed []state.ObjectProblems // all problems of each object whose problems changed, sorted by object
	Faulty  map[string]int         // how many objects of each kind have problems; kinds that never had any are missing
	Fields  map[[2]string]int      // how many problems each field of a kind has
}

// Repair is what another process did to the tables or to virtual servers, and what became of the repair.
type Repair struct {
	Interference dataplane.Interference // with the tables
	Servers      bool                   // virtual servers were changed, and not the tables
	Tried        bool                   // false: --repair=false, or a pass that is due compares everything anyway
	Result       dataplane.Result
	Duration     time.Duration
}

// What names what was changed.
func (r *Repair) What() string {
	if r.Servers {
		return "virtual servers"
	}
	return r.Interference.String()
}

// Trigger is the time at which the endpoint controller noted a change.
type Trigger struct {
	Family state.Family
	At     time.Time
}

// Triggers collects trigger times that are new, until the kernel has the changes. Changes from before the start are
// left out: the proxy did not delay them.
type Triggers struct {
	started time.Time
	latest  map[state.Name]time.Time // of Services with slices that carry one
	pending []pendingTrigger
	waiting map[state.Name][]pendingTrigger // the same for Services that wait
}

type pendingTrigger struct {
	Trigger
	of state.Name
}

// NewTriggers returns Triggers without one.
func NewTriggers(started time.Time) Triggers {
	return Triggers{started: started, latest: map[state.Name]time.Time{}, waiting: map[state.Name][]pendingTrigger{}}
}

// Note collects the new trigger times of a Service's slices.
func (t *Triggers) Note(name state.Name, slices []*state.Slice) {
	known := t.latest[name]
	latest := known
	for _, s := range slices {
		if s.Trigger.After(known) && s.Trigger.After(t.started) {
			t.pending = append(t.pending, pendingTrigger{Trigger{Family: s.Family, At: s.Trigger}, name})
		}
		if s.Trigger.After(latest) {
			latest = s.Trigger
		}
	}
	if latest.After(known) {
		t.latest[name] = latest
	}
}

// Forget drops what is known of a Service that is gone.
func (t *Triggers) Forget(name state.Name) { delete(t.latest, name) }

// Take returns what was collected, apart from Services that wait. Some have stopped waiting.
func (t *Triggers) Take(waiting *dataplane.Waiting, ended []state.Name) (triggers []Trigger) {
	for _, name := range ended {
		t.pending = append(t.pending, t.waiting[name]...)
		delete(t.waiting, name)
	}
	for _, p := range t.pending {
		if waiting.Has(p.of) {
			t.waiting[p.of] = append(t.waiting[p.of], p)
		} else {
			triggers = append(triggers, p.Trigger)
		}
	}
	t.pending = nil
	return triggers
}

// HealthChecks say which healthCheckNodePort servers answer what, and on which addresses.
type HealthChecks struct {
	Services  map[state.Name]plan.HealthCheck
	Addresses []netip.Addr
}

// WantedChecks remembers the wanted servers and whether the observer knows of them.
type WantedChecks struct {
	services map[state.Name]plan.HealthCheck
	changed  bool
}

// NewWantedChecks returns WantedChecks without a server.
func NewWantedChecks() WantedChecks {
	return WantedChecks{services: map[state.Name]plan.HealthCheck{}, changed: true}
}

// Set notes the server of a Service; nil: none.
func (c *WantedChecks) Set(name state.Name, h *plan.HealthCheck) {
	old, had := c.services[name]
	switch {
	case h == nil && had:
		delete(c.services, name)
	case h != nil && (!had || old != *h):
		c.services[name] = *h
	default:
		return
	}
	c.changed = true
}

// Relocate notes that the servers listen on other addresses.
func (c *WantedChecks) Relocate() { c.changed = true }

// Take returns the wanted servers when they changed since the last call, and nil otherwise.
func (c *WantedChecks) Take(addresses []netip.Addr) *HealthChecks {
	if !c.changed {
		return nil
	}
	c.changed = false
	return &HealthChecks{Services: maps.Clone(c.services), Addresses: addresses}
}
