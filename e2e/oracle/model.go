package oracle

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Cluster is a state of the cluster, as one node sees it.
type Cluster struct {
	Node              string
	Zone              string
	NodeAddrs         []netip.Addr   // the primary address of each family; node ports answer there
	PodRanges         []netip.Prefix // of the whole cluster
	PodCIDRs          []netip.Prefix // as the Node object names them, true or not
	ServiceCIDRs      []netip.Prefix
	LoadBalancerCIDRs []netip.Prefix // ranges of other addresses that belong to Services alone, as the administrator says
	Services          []*state.Service
	Slices            []*state.Slice
	Failed            map[state.Name]state.Health // endpoints that have answered badly
	Translates        map[netip.Addr]netip.Addr   // what another table does with destinations before a proxy sees them

	untrue untrue // for Random
}

// Packet is the first packet of a connection.
type Packet struct {
	Src      netip.Addr
	Dst      netip.AddrPort
	Protocol state.Protocol
}

// Fate is what becomes of it.
type Fate string

// The fates.
const (
	Served  Fate = "served"
	Refused Fate = "refused" // the client gets an error at once
	Dropped Fate = "dropped" // the client gets no answer
	Passed  Fate = "passed"  // it is no business of the proxy
)

// Answer is what a proxy has to do with a packet.
type Answer struct {
	Fate      Fate
	Endpoints []netip.AddrPort // any of these, sorted. If it is passed: where another table has sent it
	// Source is whose address the endpoints see: "client" or "node". "both": an endpoint on this node that is the client sees
	// the node, because it would not recognize the answer otherwise.
	Source string
	Kind   Kind // by which address the client reaches the Service
}

// Kind is by which address a client reaches a Service.
type Kind string

// The kinds.
const (
	None         Kind = ""
	ClusterIP    Kind = "cluster IP"
	External     Kind = "external IP"
	LoadBalancer Kind = "load balancer IP"
	NodePort     Kind = "node port"
)

func (c *Cluster) fromPod(p Packet) bool {
	return slices.ContainsFunc(c.PodRanges, func(r netip.Prefix) bool { return r.Contains(p.Src) })
}

// fromPodHere reports whether the packet certainly comes from a pod on this node: its address is in the podCIDRs of the Node, and the
// endpoints of Services show that these are true.
func (c *Cluster) fromPodHere(p Packet) bool {
	within := func(a netip.Addr) bool {
		return slices.ContainsFunc(c.PodCIDRs, func(r netip.Prefix) bool { return r.Contains(a) })
	}
	proven := false
	for _, svc := range c.Services {
		for _, sl := range c.Slices {
			for _, e := range sl.Endpoints {
				if sl.Service != svc.Name || len(sl.Ports) == 0 || !inFamily(svc, e.Addr) || e.Node == "" {
					continue
				}
				here := e.Node == c.Node
				if here != within(e.Addr) {
					return false
				}
				proven = proven || here
			}
		}
	}
	return proven && within(p.Src)
}

func (c *Cluster) fromNode(p Packet) bool { return slices.Contains(c.NodeAddrs, p.Src) }

// Ask answers what becomes of a packet.
func (c *Cluster) Ask(p Packet) Answer {
	if to, ok := c.Translates[p.Dst.Addr()]; ok {
		return c.translated(p, netip.AddrPortFrom(to, p.Dst.Port()))
	}
	return c.ask(p)
}

// translated is for a packet that another table has translated: nobody translates it again. At an address that only Services have, it
// ends as if it were untranslated. An external or load balancer IP may have another node that serves it.
func (c *Cluster) translated(p Packet, to netip.AddrPort) Answer {
	if !c.inRange(to.Addr()) || c.isExternal(to.Addr()) {
		return Answer{Fate: Passed, Endpoints: []netip.AddrPort{to}, Source: "client"}
	}
	p.Dst = to
	if c.ask(p).Fate == Dropped {
		return Answer{Fate: Dropped}
	}
	return Answer{Fate: Refused}
}

func (c *Cluster) ask(p Packet) Answer {
	for _, svc := range c.Services {
		if !inFamily(svc, p.Dst.Addr()) {
			continue
		}
		for i := range svc.Ports {
			if kind := c.reaches(svc, &svc.Ports[i], p); kind != None {
				return c.serve(svc, &svc.Ports[i], kind, p)
			}
		}
	}
	return Answer{Fate: c.unknown(p)}
}

// inFamily reports whether a Service exists in the family of an address: it has a cluster IP of it.
func inFamily(svc *state.Service, a netip.Addr) bool {
	return slices.ContainsFunc(svc.ClusterIPs, func(ip netip.Addr) bool { return ip.Is4() == a.Is4() })
}

// reaches says by which address of a port the packet comes.
func (c *Cluster) reaches(svc *state.Service, port *state.ServicePort, p Packet) Kind {
	dst := p.Dst.Addr()
	switch {
	case port.Protocol != p.Protocol:
		return None
	case port.NodePort != 0 && port.NodePort == p.Dst.Port() && slices.Contains(c.NodeAddrs, dst):
		return NodePort
	case port.Port != p.Dst.Port():
		return None
	case slices.Contains(svc.ClusterIPs, dst):
		return ClusterIP
	case slices.Contains(svc.LoadBalancerIPs, dst):
		return LoadBalancer
	case slices.Contains(svc.ExternalIPs, dst):
		return External
	}
	return None
}

// unknown is the fate of a packet for no port of a Service. A cluster IP refuses what no port of it takes, and so does any address of
// a Service in a range of Services. An address there that no Service has gives no answer. A packet from outside to an external or load balancer IP would go back
// to where it came from; all others may find whoever has the address, too.
func (c *Cluster) unknown(p Packet) Fate {
	dst := p.Dst.Addr()
	for _, svc := range c.Services {
		if slices.Contains(svc.ClusterIPs, dst) {
			return Refused
		}
	}
	switch external := c.isExternal(dst); {
	case external && (c.inRange(dst) || !c.fromPod(p) && !c.fromNode(p)):
		return Refused
	case c.inRange(dst):
		return Dropped
	}
	return Passed
}

// isExternal reports whether an address is an external or load balancer IP.
func (c *Cluster) isExternal(a netip.Addr) bool {
	return slices.ContainsFunc(c.Services, func(svc *state.Service) bool {
		return inFamily(svc, a) && (slices.Contains(svc.ExternalIPs, a) || slices.Contains(svc.LoadBalancerIPs, a))
	})
}

// inRange reports whether an address is in a range that belongs to Services alone.
func (c *Cluster) inRange(a netip.Addr) bool {
	return slices.ContainsFunc(slices.Concat(c.ServiceCIDRs, c.LoadBalancerCIDRs), func(r netip.Prefix) bool { return r.Contains(a) })
}

// serve is the fate of a packet for a port of a Service.
func (c *Cluster) serve(svc *state.Service, port *state.ServicePort, kind Kind, p Packet) Answer {
	a := Answer{Kind: kind}
	if kind == LoadBalancer && !c.admits(svc, p) {
		a.Fate = Dropped
		return a
	}
	// Traffic policies. The node itself and its pods are inside: for them, externalTrafficPolicy Local does not matter (the short
	// circuit). Other pods are, too, when no endpoint is here.
	inside := c.fromPodHere(p) || c.fromNode(p)
	localOnly := kind == ClusterIP && svc.InternalLocal || kind != ClusterIP && svc.ExternalLocal && !inside
	all := c.endpoints(svc, port, p.Dst.Addr().Is4())
	cluster := c.usable(svc, all, false)
	use := cluster
	if localOnly {
		use = c.usable(svc, all, true)
		if len(use) == 0 && kind != ClusterIP && c.fromPod(p) {
			use = cluster
		}
	}
	switch {
	case len(use) > 0:
		a.Fate, a.Endpoints, a.Source = Served, addresses(use), c.source(svc, kind, p, use)
	case len(cluster) == 0:
		a.Fate = Refused // nobody serves it anywhere
	default:
		a.Fate = Dropped // another node may serve it
	}
	return a
}

// admits reports whether loadBalancerSourceRanges let a client in. A range that covers a whole family lets everyone in. A
// family without a range is closed.
func (c *Cluster) admits(svc *state.Service, p Packet) bool {
	if svc.NoSource {
		return false
	}
	if len(svc.SourceRanges) == 0 {
		return true
	}
	v4 := p.Dst.Addr().Is4()
	own, everyone, elsewhere := false, false, false
	for _, r := range svc.SourceRanges {
		switch whole := r.Bits() == 0; {
		case r.Addr().Is4() == v4:
			own, everyone = true, everyone || whole
		case whole:
			elsewhere = true
		}
	}
	if everyone || !own && elsewhere {
		return true
	}
	for _, r := range svc.SourceRanges {
		if r.Contains(p.Src) {
			return true
		}
		// A node that is allowed may use an address of the load balancer as its own.
		if slices.ContainsFunc(c.NodeAddrs, r.Contains) && slices.Contains(svc.LoadBalancerIPs, p.Src) {
			return true
		}
	}
	return false
}

// source is whose address the endpoint sees. Pods keep theirs at cluster IPs. With externalTrafficPolicy Local, everyone keeps
// it but the node itself, and pods of elsewhere on their way to an endpoint elsewhere, whose answer would pass by the node.
func (c *Cluster) source(svc *state.Service, kind Kind, p Packet, use []endpoint) string {
	masquerades := !c.fromPod(p)
	if kind != ClusterIP {
		passesBy := len(only(use, func(e endpoint) bool { return e.local })) == 0 && c.fromPod(p) && !c.fromPodHere(p)
		masquerades = !svc.ExternalLocal || c.fromNode(p) || passesBy
	}
	itself := len(only(use, func(e endpoint) bool { return e.local && e.at.Addr() == p.Src }))
	switch {
	case masquerades || itself == len(use):
		return "node"
	case itself > 0:
		return "both"
	}
	return "client"
}

// Store returns a store with the cluster, for a program under test.
func (c *Cluster) Store() *state.Store {
	s := state.NewStore()
	c.WriteTo(s)
	return s
}

// WriteTo writes the cluster into a store.
func (c *Cluster) WriteTo(s *state.Store) {
	s.SetNode(&state.Node{Name: c.Node, Zone: c.Zone, Addresses: c.NodeAddrs, PodCIDRs: c.PodCIDRs}, nil)
	s.SetHostAddresses(c.NodeAddrs)
	s.SetServiceCIDRs(c.ServiceCIDRs)
	for _, svc := range c.Services {
		s.SetService(svc, nil)
		s.SetHealth(svc.Name, c.Failed[svc.Name])
	}
	for _, sl := range c.Slices {
		s.SetSlice(sl, nil)
	}
	s.MarkSynced()
}

// RemoveFrom removes the Services and slices of the cluster from a store.
func (c *Cluster) RemoveFrom(s *state.Store) {
	for _, svc := range c.Services {
		s.DeleteService(svc.Name)
		s.SetHealth(svc.Name, nil)
	}
	for _, sl := range c.Slices {
		s.DeleteSlice(sl.Name)
	}
}
