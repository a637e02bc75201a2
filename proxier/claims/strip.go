package claims

import (
	"slices"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// wanted lists the claims of a plan, unsorted. A key that occurs twice in the plan is in the list twice. An external
// address that is a node port address also claims the place beside the node port with its number.
func (c *Claims) wanted(p *plan.Service) []claim {
	c.scratch = c.scratch[:0]
	for i := range p.Ports {
		port := &p.Ports[i]
		for j := range port.Frontends {
			fe := &port.Frontends[j]
			want := claim{key: keyOf(port, fe), rank: rankOf(fe.Kind)}
			c.scratch = append(c.scratch, want)
			if c.hidesNodePort(want) {
				c.scratch = append(c.scratch, claim{key: want.nodePort(), rank: want.rank})
			}
		}
	}
	if p.HealthCheck != nil {
		for _, k := range healthCheckKeys(p.HealthCheck.NodePort) {
			c.scratch = append(c.scratch, claim{key: k, rank: rankNodePort})
		}
	}
	return c.scratch
}

// stripper removes from a plan the frontends that the Service does not get.
type stripper struct {
	claims *Claims
	plan   *plan.Service
	id     uint32
	seen   map[key]bool // keys so far: the kernel would refuse a key that one Service has twice
	lost   []state.Problem
}

func (c *Claims) strip(p *plan.Service, id uint32) []state.Problem {
	s := stripper{claims: c, plan: p, id: id, seen: map[key]bool{}}
	for i := range p.Ports {
		port := &p.Ports[i]
		port.Frontends = slices.DeleteFunc(port.Frontends, func(fe plan.Frontend) bool {
			k := keyOf(port, &fe)
			return s.refuses(k, fieldOf(fe.Kind)) || s.hides(claim{key: k, rank: rankOf(fe.Kind)}, fieldOf(fe.Kind))
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

// refuses reports whether the plan must lose a frontend. If so, it records why.
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

// hides reports whether the plan must lose an external address because it would hide the node port of another Service.
// If so, it records why.
func (s *stripper) hides(want claim, field string) bool {
	if !s.claims.hidesNodePort(want) {
		return false
	}
	holder, taken := s.claims.holders[want.nodePort()]
	if !taken || holder.id() == s.id {
		return false
	}
	s.report(field, want.String()+" would hide "+want.nodePort().String()+" of "+
		s.claims.claimants[holder.id()].String()+", which answers at this address")
	return true
}

// report adds a Problem. A node port that is lost in both families causes a single Problem.
func (s *stripper) report(field, reason string) {
	p := state.Problem{Kind: "Service", Object: s.plan.Name, Field: field, Reason: reason}
	if !slices.Contains(s.lost, p) {
		s.lost = append(s.lost, p)
	}
}

// fieldOf returns the path of the field from which a kind of frontend comes.
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
