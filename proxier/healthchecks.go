package proxier

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

// healthChecks remembers the wanted servers and whether the observer knows of them.
type healthChecks struct {
	services map[state.Name]plan.HealthCheck
	changed  bool
}

func newHealthChecks() healthChecks {
	return healthChecks{services: map[state.Name]plan.HealthCheck{}, changed: true}
}

// set notes the server of a Service; nil: none.
func (c *healthChecks) set(name state.Name, h *plan.HealthCheck) {
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

// take returns the wanted servers when they changed since the last call, and nil otherwise.
func (c *healthChecks) take(addresses []netip.Addr) *HealthChecks {
	if !c.changed {
		return nil
	}
	c.changed = false
	return &HealthChecks{Services: maps.Clone(c.services), Addresses: addresses}
}
