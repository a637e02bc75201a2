package claims

import (
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// kept is what external addresses must not take, even where nobody else asks for the port: it is kept for others.
//
// An external IP that is the cluster IP of another Service would get packets that are meant for that Service, at the
// ports that it does not have. And whoever serves the address and port of an API server gets the tokens of everybody,
// and this node does not hear of it when the Service is gone.
type kept struct {
	clusterIPs map[[16]byte]owners // the Services that have the address as a cluster IP
	servers    Servers
}

// owners are some Services. Of one, the sum is its number.
type owners struct{ n, sum uint32 }

func (o owners) with(id uint32, by int) owners { return owners{o.n + uint32(by), o.sum ^ id} }

// Servers are the addresses and TCP ports of API servers. The value tells whether load balancer IPs are refused as well as
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

// systemNamespace has the Services of those who run the cluster. One of them may balance the API servers.
const systemNamespace = "kube-system"

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
	case server && port.Protocol == state.TCP && n.Namespace != systemNamespace && (balancers || fe.Kind == plan.ExternalIP || fe.EndPort != 0):
		return "is an API server, which only a Service in " + systemNamespace + " may serve"
	}
	return ""
}
