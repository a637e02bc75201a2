package claims

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// SetNodePortAddresses records the addresses at which node ports answer. It returns the Services with an external
// address that became one of them or is no longer one. The caller must plan those again. The cost depends on those
// Services.
func (c *Claims) SetNodePortAddresses(addrs []netip.Addr) (replan []state.Name) {
	next := make(map[[16]byte]bool, len(addrs))
	for _, a := range addrs {
		next[a.As16()] = true
	}
	for a := range next {
		if !c.beside.addrs[a] {
			c.replanAt(a)
		}
	}
	for a := range c.beside.addrs {
		if !next[a] {
			c.replanAt(a)
		}
	}
	c.beside.addrs = next
	return c.changed()
}

// SetHostAddresses records the addresses of this node. It returns the Services with a cluster IP that became one of them
// or is no longer one. The caller must plan those again.
func (c *Claims) SetHostAddresses(sorted []netip.Addr) (replan []state.Name) {
	changed := map[[16]byte]bool{}
	for _, lists := range [][2][]netip.Addr{{c.host, sorted}, {sorted, c.host}} {
		for _, a := range lists[0] {
			if _, both := slices.BinarySearchFunc(lists[1], a, netip.Addr.Compare); !both && c.kept.clusterIPs[a.As16()].n > 0 {
				changed[a.As16()] = true
			}
		}
	}
	c.host = slices.Clone(sorted)
	if len(changed) == 0 {
		return nil
	}
	for id := range c.claimants {
		if slices.ContainsFunc(c.claimants[id].claims, func(want claim) bool {
			return want.rank == rankClusterIP && changed[want.addr]
		}) {
			c.replan = append(c.replan, uint32(id))
		}
	}
	return c.changed()
}

// SetServers records the API servers. It returns the Services with an external address that is, or was, one of an API
// server. The caller must plan those again.
func (c *Claims) SetServers(next Servers) (replan []state.Name) {
	if maps.Equal(c.kept.servers, next) {
		return nil
	}
	for _, list := range []Servers{c.kept.servers, next} {
		for at := range list {
			c.replanAt(at.Addr().As16())
		}
	}
	c.kept.servers = maps.Clone(next)
	return c.changed()
}

// spareHost has the cluster IPs of a plan that are addresses of this node served like external IPs, at its ports only. The
// unused ports of other cluster IPs are refused. Here, programs of the node listen at those ports: a cluster IP would lock
// everybody out of the node.
func (c *Claims) spareHost(p *plan.Service) []state.Problem {
	found := state.ProblemList{Object: state.Object{Kind: "Service", Name: p.Name}}
	var reported []netip.Addr
	for i := range p.Ports {
		for j := range p.Ports[i].Frontends {
			fe := &p.Ports[i].Frontends[j]
			if fe.Kind != plan.ClusterIP {
				continue
			}
			if _, atHost := slices.BinarySearchFunc(c.host, fe.Addr, netip.Addr.Compare); !atHost {
				continue
			}
			fe.ClusterIP, fe.Masquerade = false, serviceport.MasqueradeAlways
			if !slices.Contains(reported, fe.Addr) {
				reported = append(reported, fe.Addr)
				found.Add(fe.Kind.Field(), "%s is an address of this node: its other ports stay open, and all connections to the "+
					"Service are masqueraded there", fe.Addr)
			}
		}
	}
	return found.Problems()
}

// kept is what external addresses must not take, even where nobody else asks for the port: it is kept for others.
//
// An external IP that is the cluster IP of another Service would get packets that are meant for that Service, at the
// ports that it does not have. And whoever serves the address and port of an API server gets the tokens of everybody,
// and this node does not learn when the Service is gone.
type kept struct {
	clusterIPs map[[16]byte]owners // the Services that have the address as a cluster IP
	servers    Servers
}

// owners are some Services. Of one, the sum is its number.
type owners struct{ n, sum uint32 }

func (o owners) with(id uint32, by int) owners { return owners{o.n + uint32(by), o.sum ^ id} }

// Servers are the addresses and TCP ports of API servers. The value says whether load balancer IPs are refused as well as
// external IPs.
type Servers map[netip.AddrPort]bool

// at reports whether a frontend is at the address and port of an API server, and whether that is kept from load balancers.
func (s Servers) at(fe *plan.Frontend) (balancers, found bool) {
	if fe.EndPort == 0 {
		balancers, found = s[netip.AddrPortFrom(fe.Addr, fe.Port)]
		return balancers, found
	}
	for at, all := range s {
		if at.Addr() == fe.Addr && fe.Port <= at.Port() && at.Port() <= fe.EndPort {
			balancers, found = balancers || all, true
		}
	}
	return balancers, found
}

// meets reports whether a plan asks for something that is kept for others.
func (k *kept) meets(p *plan.Service) bool {
	for i := range p.Ports {
		for j := range p.Ports[i].Frontends {
			if k.reason(p.Name, &p.Ports[i], &p.Ports[i].Frontends[j]) != "" {
				return true
			}
		}
	}
	return false
}

// reason returns why a Service must not have a frontend. It returns "" if the Service may.
func (k *kept) reason(n state.Name, port *plan.Port, fe *plan.Frontend) (why string) {
	if fe.Kind != plan.ExternalIP && fe.Kind != plan.LoadBalancer {
		return ""
	}
	balancers, server := k.servers.at(fe)
	switch {
	case fe.Kind == plan.ExternalIP && k.clusterIPs[fe.Addr.As16()].n > 0:
		return "is at the cluster IP of another Service, which keeps all ports of its address"
	case server && port.Protocol == state.TCP && n.Namespace != state.SystemNamespace && (balancers || fe.Kind == plan.ExternalIP || fe.EndPort != 0):
		return "is an API server, which only a Service in " + state.SystemNamespace + " may serve"
	}
	return ""
}
