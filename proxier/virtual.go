package proxier

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
)

// A service port that IPVS serves has a virtual server for each frontend and address. What a virtual server cannot do
// stays with nft: refusals, source ranges, masquerading, and connections that go to other endpoints than the virtual
// server's, because it has one set of them:
//
//   - externalTrafficPolicy Local shows pods and the node itself all endpoints, everyone else those on this node. The
//     virtual server has the latter; pods and the node get theirs from nft (nft.BySource).
//   - The kernel does not let IPVS send on what comes from a loopback address (crosses_local_route_boundary in
//     ip_vs_xmit.c): node ports on 127.0.0.1 are served by nft.

// virtualServers lists the virtual servers of a port. None for a frontend without endpoints: nft refuses its packets.
func virtualServers(p *plan.Port, m *method, env *environment) []ipvsctl.VirtualServer {
	cluster, local := realServers(p.Cluster), realServers(p.Local)
	var out []ipvsctl.VirtualServer
	for i := range p.Frontends {
		f := &p.Frontends[i]
		reals := local
		if f.Policy == plan.ClusterPolicy {
			reals = cluster
		}
		if len(reals) == 0 {
			continue
		}
		for _, addr := range env.places(p, f) {
			out = append(out, ipvsctl.VirtualServer{
				Key:         ipvsctl.Key{Addr: addr, Port: f.Port, Protocol: ipvsctl.Protocol(p.Protocol)},
				Local:       f.Addr.IsValid() && !env.host[addr],
				Scheduler:   m.scheduler,
				Flags:       m.flags,
				Persistence: p.Affinity,
				RealServers: reals,
			})
		}
	}
	return out
}

func realServers(list []plan.Endpoint) []ipvsctl.RealServer {
	out := make([]ipvsctl.RealServer, len(list))
	for i, e := range list {
		out[i] = ipvsctl.RealServer{Addr: e.Addr, Weight: e.Weight}
	}
	return out
}

// places are the addresses at which IPVS serves a frontend.
func (e *environment) places(p *plan.Port, f *plan.Frontend) []netip.Addr {
	if f.Addr.IsValid() {
		return []netip.Addr{f.Addr}
	}
	return filter(e.globals.NodePortAddresses, func(a netip.Addr) bool {
		return family(p.Family) == nft.FamilyOf(a) && !a.IsLoopback()
	})
}

// besideIPVS is what nft does for a port that IPVS serves.
func besideIPVS(p *plan.Port, m *method, env *environment) *nft.Port {
	out := new(translator).port(p, m)
	out.Hairpin = localAddresses(p.Cluster, p.Local)
	pooled := false
	for i := range out.Frontends {
		fe := &out.Frontends[i]
		fe.IPVS = fe.Pool != nft.NoPool && fe.Refusal != nft.Drop
		if fe.Pool == nft.BySource {
			pooled = true
			continue
		}
		fe.Pool = nft.NoPool
		if fe.IPVS && !fe.Addr.IsValid() {
			extra := loopbackNodePorts(*fe, env.globals.NodePortAddresses, out.Family)
			pooled = pooled || len(extra) > 0
			out.Frontends = append(out.Frontends, extra...)
		}
	}
	if !pooled {
		out.Cluster = nil
	}
	out.Local = nil
	return out
}

// loopbackNodePorts are frontends of nft for a node port on loopback addresses.
func loopbackNodePorts(nodePort nft.Frontend, addrs []netip.Addr, f nft.Family) []nft.Frontend {
	var out []nft.Frontend
	for _, a := range addrs {
		if a.IsLoopback() && nft.FamilyOf(a) == f {
			out = append(out, nft.Frontend{Addr: a, Port: nodePort.Port, Pool: nft.ClusterPool, Masquerade: nft.MasqueradeAlways})
		}
	}
	return out
}

func localAddresses(lists ...[]plan.Endpoint) []netip.Addr {
	var out []netip.Addr
	for _, list := range lists {
		for _, e := range list {
			if e.Local {
				out = append(out, e.Addr.Addr())
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
