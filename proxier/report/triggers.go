package report

import (
	"maps"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

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
	pending []Trigger
}

// NewTriggers returns Triggers without one.
func NewTriggers(started time.Time) Triggers {
	return Triggers{started: started, latest: map[state.Name]time.Time{}}
}

// Note collects the new trigger times of a Service's slices.
func (t *Triggers) Note(name state.Name, slices []*state.Slice) {
	known := t.latest[name]
	latest := known
	for _, s := range slices {
		if s.Trigger.After(known) && s.Trigger.After(t.started) {
			t.pending = append(t.pending, Trigger{Family: s.Family, At: s.Trigger})
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

// Take returns what was collected and starts anew.
func (t *Triggers) Take() []Trigger {
	pending := t.pending
	t.pending = nil
	return pending
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
