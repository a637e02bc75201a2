package oracle

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Keeps answers whether a flow that a packet began goes on to its endpoint. The Service may have changed since: of flows, only those
// of UDP end then. They do when nobody has the address and port any more, when the endpoint neither is ready nor serves, or has
// failed and gets no connections, and when source ranges exclude the client. All else is about new flows.
func (c *Cluster) Keeps(p Packet, at netip.AddrPort) bool {
	for _, svc := range c.Services {
		for i := range svc.Ports {
			port := &svc.Ports[i]
			if kind := c.reaches(svc, port, p); kind != None && inFamily(svc, p.Dst.Addr()) {
				return p.Protocol != state.UDP || (kind != LoadBalancer || c.admits(svc, p)) && c.carries(svc, port, at)
			}
		}
	}
	return p.Protocol != state.UDP
}

// carries reports whether an endpoint of a port still serves flows.
func (c *Cluster) carries(svc *state.Service, port *state.ServicePort, at netip.AddrPort) bool {
	for _, sl := range c.Slices {
		serves := slices.ContainsFunc(sl.Ports, func(p state.SlicePort) bool {
			return p.Name == port.Name && p.Protocol == port.Protocol && p.Port == at.Port()
		})
		for _, e := range sl.Endpoints {
			if serves && sl.Service == svc.Name && e.Addr == at.Addr() && (e.Ready || e.Serving) {
				return !c.failed(svc, port, at) || c.gets(svc, port, at)
			}
		}
	}
	return false
}

// gets reports whether an endpoint of a port gets new connections from anybody.
func (c *Cluster) gets(svc *state.Service, port *state.ServicePort, at netip.AddrPort) bool {
	external := port.NodePort != 0 || slices.ContainsFunc(slices.Concat(svc.ExternalIPs, svc.LoadBalancerIPs),
		func(a netip.Addr) bool { return a.Is4() == at.Addr().Is4() })
	all := c.endpoints(svc, port, at.Addr().Is4())
	var use []endpoint
	if external || !svc.InternalLocal {
		use = c.usable(svc, all, false)
	}
	if svc.InternalLocal || external && svc.ExternalLocal {
		use = append(use, c.usable(svc, all, true)...)
	}
	return slices.ContainsFunc(use, func(e endpoint) bool { return e.at == at })
}
