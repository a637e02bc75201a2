package claims

import (
	"slices"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// wanted lists the claims of a plan, unsorted. A key that occurs twice in the plan is in the list twice. An external
// address that may be a node port address also claims the place beside the node port with its number.
func (c *Claims) wanted(p *plan.Service) []claim {
	c.scratch = c.scratch[:0]
	for i := range p.Ports {
		port := &p.Ports[i]
		var last claim // all external IPs of a port stand beside the same node port
		for j := range port.Frontends {
			fe := &port.Frontends[j]
			want := claim{key: keyOf(port, fe), rank: rankOf(fe)}
			c.scratch = append(c.scratch, want)
			if beside := (claim{key: want.nodePort(), rank: want.rank}); c.beside.hidesNodePort(want) && beside != last {
				c.scratch = append(c.scratch, beside)
				last = beside
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
	seen   map[key]bool  // keys so far: the kernel would refuse a key that one Service has twice
	beside map[key][]key // the same by place, where ranges are
	lost   state.ProblemList
	// reported holds the node ports that were lost in one family. Losing one in both families is a single Problem.
	reported map[portLoss]bool
}

// portLoss is the loss of a node port of any family to another Service, or to an earlier port of the same Service.
type portLoss struct {
	port   key
	holder uint32
}

func (c *Claims) strip(p *plan.Service, id uint32) []state.Problem {
	s := stripper{
		claims: c, plan: p, id: id, seen: map[key]bool{}, beside: map[key][]key{}, reported: map[portLoss]bool{},
		lost: state.ProblemList{Object: state.Object{Kind: "Service", Name: p.Name}},
	}
	for i := range p.Ports {
		port := &p.Ports[i]
		port.Frontends = slices.DeleteFunc(port.Frontends, func(fe plan.Frontend) bool {
			want, field := claim{key: keyOf(port, &fe), rank: rankOf(&fe)}, fe.Kind.Field()
			return s.refuses(want, field) || s.hides(want, field) || s.isKept(port, &fe)
		})
	}
	if check := p.HealthCheck; check != nil {
		for _, k := range healthCheckKeys(check.NodePort) {
			if s.refuses(claim{key: k}, "spec.healthCheckNodePort") {
				p.HealthCheck = nil
			}
		}
	}
	return s.lost.Problems()
}

// refuses reports whether the plan must lose a frontend. If so, it records why.
func (s *stripper) refuses(want claim, field string) bool {
	k := want.key
	holder := s.claims.holders[k]
	switch {
	case holder.id() != s.id:
		if s.isNew(k, holder.id()) {
			s.lost.Add(field, "%s is taken by %s", k, s.claims.claimants[holder.id()].Name)
		}
		return true
	case s.seen[k]:
		if s.isNew(k, s.id) {
			s.lost.Add(field, "%s occurs twice in this Service: the first one counts", k)
		}
		return true
	}
	s.seen[k] = true
	return s.overlaps(want, field)
}

// overlaps reports whether the plan must lose a frontend because of a range. If so, it records why.
func (s *stripper) overlaps(want claim, field string) bool {
	if want.isNodePort() {
		return false // no range has precedence over it
	}
	o := overlap{s.claims, s.id, want}
	holder, other, found := o.stronger()
	if s.claims.block(blockedKey{s.id, want.key}, other, found); found {
		s.lost.Add(field, "%s overlaps with %s of %s", want.key, other.ports(), s.claims.claimants[holder].Name)
		return true
	}
	earlier, found := s.overlapsOwn(want.key)
	if found {
		s.lost.Add(field, "%s overlaps with %s in this Service: the first one counts", want.key, earlier.ports())
	}
	return found
}

// overlapsOwn reports whether a frontend overlaps with an earlier one of the same Service.
func (s *stripper) overlapsOwn(k key) (earlier key, found bool) {
	if s.claims.ranges.count[k.place()] == 0 {
		return key{}, false
	}
	i := slices.IndexFunc(s.beside[k.place()], k.overlaps)
	if i < 0 {
		s.beside[k.place()] = append(s.beside[k.place()], k)
		return key{}, false
	}
	return s.beside[k.place()][i], true
}

// hides reports whether the plan must lose an external address because it would hide the node port of another Service.
// If so, it records why.
func (s *stripper) hides(want claim, field string) bool {
	if !s.claims.beside.hidesNodePort(want) {
		return false
	}
	at, found := overlap{s.claims, s.id, want}.hidden()
	if s.claims.block(blockedKey{s.id, want.nodePort()}, at, found); !found {
		return false
	}
	where := "at this address"
	if want.rank == rankExternalIP {
		where = "at addresses of nodes, and this may be one"
	}
	s.lost.Add(field, "%s would hide %s of %s, which answers %s",
		want.key, at, s.claims.claimants[s.claims.holders[at].id()].Name, where)
	return true
}

// isKept reports whether the plan must lose a frontend that is kept for others. If so, it records why.
func (s *stripper) isKept(port *plan.Port, fe *plan.Frontend) bool {
	why := s.claims.kept.reason(s.plan.Name, port, fe)
	if why != "" {
		s.lost.Add(fe.Kind.Field(), "%s %s", keyOf(port, fe), why)
	}
	return why != ""
}

// isNew reports whether the loss of a key has not been reported for the other family.
func (s *stripper) isNew(k key, holder uint32) bool {
	if !k.isNodePort() {
		return true
	}
	loss := portLoss{port: nodePortKey(state.IPv4, k.protocol, k.port), holder: holder}
	if s.reported[loss] {
		return false
	}
	s.reported[loss] = true
	return true
}
