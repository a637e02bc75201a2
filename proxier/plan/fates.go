package plan

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Fate says for one endpoint of a Service port which pools it is in, and why not in the others.
type Fate struct {
	Port     string // namespace/name:port
	Addr     netip.AddrPort
	Protocol state.Protocol
	Node     string
	// OutOfCluster and OutOfLocal say why the endpoint is not in the pool of policy Cluster or Local; "": it is, or would
	// be if a frontend needed that pool.
	OutOfCluster, OutOfLocal string
}

// Fates explains the endpoints of a Service, port by port. It decides as Plan does, without limits. It changes nothing
// that Plan depends on.
func (p *Planner) Fates(svc *state.Service, list []*state.Slice, env *Environment) (out []Fate) {
	p.open(svc, list, env)
	defer p.close()
	x := explainer{candidates: &p.candidates, zone: env.Zone, endpoints: endpointsByAddress(p.endpoints.slices)}
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		if !hasFamily(svc, family) {
			continue
		}
		p.endpoints.collect(family, svc, p.Limits.members())
		for i := range svc.Ports {
			name := p.names.of(svc, i)
			p.serve(i, family)
			out = x.fatesOf(out, Fate{Port: name, Protocol: svc.Ports[i].Protocol}, family)
		}
	}
	return out
}

func endpointsByAddress(list []*state.Slice) map[netip.Addr]*state.Endpoint {
	out := map[netip.Addr]*state.Endpoint{}
	for _, sl := range list {
		for i := range sl.Endpoints {
			if e := &sl.Endpoints[i]; out[e.Addr] == nil || !e.Terminating {
				out[e.Addr] = e
			}
		}
	}
	return out
}

// explainer knows why the candidates of a port are in a pool or not.
type explainer struct {
	candidates *candidates
	zone       string                         // of this node
	endpoints  map[netip.Addr]*state.Endpoint // of all slices
}

// fatesOf explains the candidates of the current port. What all of them have in common is in the fate.
func (x *explainer) fatesOf(out []Fate, f Fate, family state.Family) []Fate {
	cluster, near := x.candidates.choose(0), x.candidates.choose(local)
	for i := range x.candidates.list {
		c := &x.candidates.list[i]
		addr := address(family, c.hi, c.lo)
		e := x.endpoints[addr]
		f.Addr, f.Node = netip.AddrPortFrom(addr, c.port), e.Node
		f.OutOfCluster, f.OutOfLocal = x.why(c, cluster, e), x.why(c, near, e)
		out = append(out, f)
	}
	return out
}

// why says why a selection does not have an endpoint; "": it has it.
func (x *explainer) why(c *candidate, of selection, e *state.Endpoint) string {
	switch {
	case of.has(c.flags):
		return ""
	case c.flags&misplaced != 0:
		return "in a ServiceCIDR, whose addresses are no endpoints"
	case c.weight == 0:
		return "weight 0"
	case of.all&ready != 0 && c.flags&draining != 0:
		return "terminating, while others are ready"
	case c.flags&terminating != 0 && c.flags&(ready|draining) == 0:
		return "terminating and not serving"
	case c.flags&(ready|draining) == 0:
		return "not ready"
	}
	return x.whyNotChosen(c, of, e)
}

// whyNotChosen says why a selection does not have an endpoint that takes connections.
func (x *explainer) whyNotChosen(c *candidate, of selection, e *state.Endpoint) string {
	lacks := of.all &^ c.flags
	switch {
	case lacks&local != 0 && e.Node == "":
		return "on an unknown node"
	case lacks&local != 0:
		return "on node " + e.Node
	case c.flags&bad != 0 && !of.some:
		return "not good, and on-all-down is " + x.candidates.allDown.String()
	case c.flags&bad&of.not != 0:
		return "not good"
	case c.flags&backup&of.not != 0:
		return "a backup, and another endpoint is good"
	case lacks&backup != 0:
		return "not a backup, and no endpoint is good"
	case lacks&forThisNode != 0:
		return "its hints are for other nodes: " + strings.Join(e.Hints.Nodes, ", ")
	case lacks&forThisZone != 0:
		return fmt.Sprintf("its hints are for other zones: %s (this node is in %s)", strings.Join(e.Hints.Zones, ", "), x.zone)
	}
	return "not needed"
}
