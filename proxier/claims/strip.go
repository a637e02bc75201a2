package claims

import (
	"slices"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// wanted lists what a plan asks for, in no order; a key that occurs twice is listed twice.
func (c *Claims) wanted(p *plan.Service) []claim {
	c.scratch = c.scratch[:0]
	for i := range p.Ports {
		port := &p.Ports[i]
		for j := range port.Frontends {
			fe := &port.Frontends[j]
			c.scratch = append(c.scratch, claim{keyOf(port, fe), fe.Kind == plan.ClusterIP})
		}
	}
	if p.HealthCheck != nil {
		for _, k := range healthCheckKeys(p.HealthCheck.NodePort) {
			c.scratch = append(c.scratch, claim{key: k})
		}
	}
	return c.scratch
}

// stripper takes the frontends out of one plan that it cannot have.
type stripper struct {
	claims *Claims
	plan   *plan.Service
	id     uint32
	seen   map[key]bool // keys met so far: the kernel would refuse one that comes twice in the same Service
	lost   []state.Problem
}

func (c *Claims) strip(p *plan.Service, id uint32) []state.Problem {
	s := stripper{claims: c, plan: p, id: id, seen: map[key]bool{}}
	for i := range p.Ports {
		port := &p.Ports[i]
		port.Frontends = slices.DeleteFunc(port.Frontends, func(fe plan.Frontend) bool {
			return s.refuses(keyOf(port, &fe), fieldOf(fe.Kind))
		})
	}
	if p.HealthCheck != nil && s.refusesAny(healthCheckKeys(p.HealthCheck.NodePort)) {
		p.HealthCheck = nil
	}
	return s.lost
}

func (s *stripper) refusesAny(keys [2]key) (refused bool) {
	for _, k := range keys {
		refused = s.refuses(k, "spec.healthCheckNodePort") || refused
	}
	return refused
}

// refuses tells whether a frontend has to go, and if so records why.
func (s *stripper) refuses(k key, field string) bool {
	holder := s.claims.holders[k]
	switch {
	case holder.id() != s.id:
		s.report(field, k.String()+" is taken by "+s.claims.claimants[holder.id()].String())
		return true
	case s.seen[k]:
		s.report(field, k.String()+" occurs twice in this Service: the first one counts")
		return true
	}
	s.seen[k] = true
	return false
}

// report adds a Problem. A node port that is lost in both families is one.
func (s *stripper) report(field, reason string) {
	p := state.Problem{Kind: "Service", Object: s.plan.Name, Field: field, Reason: reason}
	if !slices.Contains(s.lost, p) {
		s.lost = append(s.lost, p)
	}
}

// fieldOf names the field from which a kind of frontend comes.
func fieldOf(k plan.FrontendKind) string {
	switch k {
	case plan.ExternalIP:
		return "spec.externalIPs"
	case plan.LoadBalancer:
		return "status.loadBalancer.ingress"
	case plan.NodePort:
		return "spec.ports.nodePort"
	}
	return "spec.clusterIPs"
}
