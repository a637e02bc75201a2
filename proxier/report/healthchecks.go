package report

import (
	"maps"
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

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
