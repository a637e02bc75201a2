package dataplane

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// IPVS serves only addresses that are local. Where an address is local, this node can no longer reach the host that has
// it: if that host is an API server, Verdict does not even hear that the Service is gone. Users write any address into
// spec.externalIPs, and controllers such as servicelb of k3s write the addresses of nodes into the status of load
// balancers. So IPVS serves these addresses only where the operator allows it, and nft serves them elsewhere: nft takes
// the ports of the Service and no others.
//
// The rule needs no list of all nodes: addresses of other nodes are outside of --ipvs-external-cidrs.

// outside returns why IPVS must not serve a frontend. It returns "" if IPVS may.
func (e *Environment) outside(f *plan.Frontend) string {
	external := f.Kind == plan.ExternalIP
	switch {
	case !external && f.Kind != plan.LoadBalancer:
		return ""
	case contains(e.APIServers, f.Addr):
		return "is an address of an API server"
	case contains(e.NodeAddresses, f.Addr) || external && e.hasAddress(f.Addr):
		return "is an address of this node"
	case !slices.ContainsFunc(e.ExternalCIDRs, func(r netip.Prefix) bool { return r.Contains(f.Addr) }):
		return "is outside --ipvs-external-cidrs"
	}
	return ""
}

// divide notes in each frontend of a port whether IPVS serves it. With externalTrafficPolicy Local, one engine serves
// all addresses for clients outside: if nft serves one of them, it has the local pool, and would then take the packets
// to all of them.
func (e *Environment) divide(p *plan.Port) {
	localPool := false
	for i := range p.Frontends {
		f := &p.Frontends[i]
		f.IPVS = e.outside(f) == ""
		localPool = localPool || !f.IPVS && f.Policy == plan.SourcePolicy
	}
	for i := range p.Frontends {
		if f := &p.Frontends[i]; localPool && f.Policy == plan.SourcePolicy {
			f.IPVS = false
		}
	}
}

// leaveToNFT notes that nft serves all frontends of a port.
func leaveToNFT(p *plan.Port) {
	for i := range p.Frontends {
		p.Frontends[i].IPVS, p.Frontends[i].Unchanged = false, false
	}
}

// keptOut collects Problems of frontends that nft serves although IPVS serves their ports. All ports of a Service have
// the same addresses, so each address is reported once.
type keptOut struct {
	list state.ProblemList
	seen map[netip.Addr]bool
}

func (k *keptOut) note(p *plan.Port, e *Environment) {
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.IPVS || k.seen[f.Addr] {
			continue
		}
		if k.seen == nil {
			k.seen = map[netip.Addr]bool{}
		}
		k.seen[f.Addr] = true
		how := "by the nearest scheduler that it has"
		if p.Balancing.Forwarding != state.NAT {
			how += ", and with NAT"
		}
		k.list.Add(f.Kind.Field(), "%s %s; nft serves it, %s", nameOf(f), e.why(f), how)
	}
}

func (e *Environment) why(f *plan.Frontend) string {
	if reason := e.outside(f); reason != "" {
		return reason + ", so IPVS must not make it local"
	}
	return "has the same engine as the other addresses for clients outside (externalTrafficPolicy Local)"
}

// nameOf names a frontend without its port.
func nameOf(f *plan.Frontend) string {
	if !f.Addr.IsValid() {
		return "the node port"
	}
	if f.Kind == plan.LoadBalancer {
		return "load balancer IP " + f.Addr.String()
	}
	return f.Kind.String() + " " + f.Addr.String()
}
