package dataplane

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
)

// A service port that IPVS serves has a virtual server for each frontend and address. nft still does what a virtual
// server cannot do: it refuses, checks source ranges and masquerades. nft also serves connections that go to other
// endpoints than the virtual server's, because a virtual server has one set of endpoints:
//
//   - With externalTrafficPolicy Local, pods and the node itself use all endpoints, and everyone else those on this node.
//     The virtual server has the endpoints on this node. nft serves pods and the node (nft.BySource).
//   - IPVS cannot forward what comes from a loopback address (crosses_local_route_boundary in ip_vs_xmit.c). nft serves
//     node ports on 127.0.0.1.
//   - IPVS serves no address that must not become local (ipvs.go).
//   - Without NAT, answers do not pass this node, so they cannot go through it to a client behind it. nft serves pods and
//     the node, with NAT. So the endpoints must answer at their own addresses too.

// virtualServers lists the virtual servers of the frontends that IPVS serves. A frontend without endpoints has none: nft
// refuses its packets.
func virtualServers(p *plan.Port, m *method, env *Environment) []ipvsctl.VirtualServer {
	byNAT := realPools{cluster: realServers(p.Cluster, wire.Forwarding{}), local: realServers(p.Local, wire.Forwarding{})}
	forwarded := byNAT
	if m.withoutNAT() {
		forwarded = realPools{cluster: realServers(p.Cluster, m.forwarding), local: realServers(p.Local, m.forwarding)}
	}
	var out []ipvsctl.VirtualServer
	for i := range p.Frontends {
		f := &p.Frontends[i]
		reals := byNAT.of(f.Pool)
		if fromOutside(f) {
			reals = forwarded.of(f.Pool)
		}
		if len(reals) == 0 || !f.IPVS {
			continue
		}
		for _, addr := range env.places(p, f) {
			out = append(out, ipvsctl.VirtualServer{
				Key:         ipvsctl.Key{Addr: addr, Port: f.Port, Protocol: p.Protocol},
				Local:       f.Addr.IsValid() && !env.hasAddress(addr),
				Scheduler:   m.scheduler,
				Flags:       m.flags,
				Persistence: p.Affinity,
				RealServers: reals,
			})
		}
	}
	return out
}

// realServers returns endpoints as IPVS gets them.
func realServers(list []serviceport.Endpoint, f wire.Forwarding) []ipvsctl.RealServer {
	out := make([]ipvsctl.RealServer, len(list))
	for i, e := range list {
		out[i] = ipvsctl.RealServer{Addr: e.Addr, Weight: e.Weight, Forwarding: f}
	}
	return out
}

// realPools are the real servers of both pools.
type realPools struct{ cluster, local []ipvsctl.RealServer }

func (s *realPools) of(pool serviceport.Pool) []ipvsctl.RealServer {
	if pool == serviceport.ClusterPool {
		return s.cluster
	}
	return s.local
}

// nftShare is what nft does for a port that IPVS serves.
func nftShare(p *plan.Port, m *method, env *Environment) *contents.Port {
	out := rules(p, m)
	out.Hairpin = localAddresses(p.Cluster, p.Local)
	for i := range out.Frontends {
		fe := &out.Frontends[i]
		if !p.Frontends[i].IPVS {
			continue
		}
		fe.IPVS = fe.Pool != program.NoPool && fe.Refusal != program.Drop
		if m.withoutNAT() && fromOutside(&p.Frontends[i]) && fe.IPVS {
			fe.Pool, fe.Masquerade = program.BySource, contents.MasqueradeNode // endpoints see the client's address
		}
		if fe.Pool == program.BySource {
			continue
		}
		fe.Pool = program.NoPool
		if !fe.IPVS || fe.Addr.IsValid() {
			continue
		}
		onLoopback := contents.Frontend{Port: fe.Port, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways}
		for _, onLoopback.Addr = range env.nodePortAddresses(out.Family, true) {
			out.Frontends = append(out.Frontends, onLoopback)
		}
	}
	dropUnusedPools(out)
	return out
}

// localAddresses lists the addresses of endpoints on this node.
func localAddresses(lists ...[]serviceport.Endpoint) []netip.Addr {
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
