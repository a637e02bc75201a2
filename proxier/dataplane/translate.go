package dataplane

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/plan"
)

// translator turns planned ports into ports of the nft engine. A port's lists of endpoints are valid until the next
// call: the engine keeps none of them, and for a large Service they are most of what a change allocates.
type translator struct{ cluster, local []contents.Endpoint }

// port returns a planned port as the nft engine serves it.
func (t *translator) port(p *plan.Port, m *method) *contents.Port {
	cluster, local := p.Cluster, p.Local
	if m.heaviest {
		cluster, local = heaviest(cluster), heaviest(local)
	}
	t.cluster, t.local = appendEndpoints(t.cluster[:0], cluster, p.Plain), appendEndpoints(t.local[:0], local, p.Plain)
	out := &contents.Port{
		Family:    family(p.Family),
		Name:      p.Name,
		Protocol:  uint8(p.Protocol),
		Method:    m.nft,
		Affinity:  p.Affinity,
		Cluster:   t.cluster,
		Local:     t.local,
		Frontends: make([]contents.Frontend, len(p.Frontends), len(p.Frontends)+1),
	}
	if p.Plain {
		out.Method = program.Random
	}
	if ranged(p) {
		keepPorts(t.cluster)
		keepPorts(t.local)
	}
	for i := range p.Frontends {
		out.Frontends[i] = frontend(p, &p.Frontends[i])
		if p.Frontends[i].Firewalled {
			out.Sources = p.Frontends[i].Sources // all load balancer addresses of a Service have the same ones
		}
	}
	return out
}

// ranged reports whether a port is a range of ports. All its frontends are.
func ranged(p *plan.Port) bool { return len(p.Frontends) > 0 && p.Frontends[0].EndPort != 0 }

// keepPorts has connections to endpoints keep their port.
func keepPorts(list []contents.Endpoint) {
	for i := range list {
		list[i].Addr = netip.AddrPortFrom(list[i].Addr.Addr(), 0)
	}
}

// dropUnusedPools leaves out pools that no frontend of nft uses: another Service has the frontend, or IPVS serves it. With
// IPVS, nft only has what comes from pods and the node itself for a frontend that decides by source.
func dropUnusedPools(p *contents.Port) {
	cluster, local := false, false
	for i := range p.Frontends {
		fe := &p.Frontends[i]
		cluster = cluster || fe.Pool == program.ClusterPool || fe.Pool == program.BySource
		local = local || fe.Pool == program.LocalPool || fe.Pool == program.BySource && !fe.IPVS
	}
	if !cluster {
		p.Cluster = nil
	}
	if !local {
		p.Local = nil
	}
}

func appendEndpoints(out []contents.Endpoint, list []plan.Endpoint, plain bool) []contents.Endpoint {
	out = slices.Grow(out, len(list))
	for i := range list {
		out = append(out, contents.Endpoint{Addr: list[i].Addr, Local: list[i].Local})
	}
	if !plain && weighted(list) {
		for i, n := range slots(list) {
			out[i].Slots = n
		}
	}
	return out
}

func frontend(p *plan.Port, f *plan.Frontend) contents.Frontend {
	return contents.Frontend{
		Addr:      f.Addr,
		Port:      f.Port,
		EndPort:   f.EndPort,
		ClusterIP: f.Kind == plan.ClusterIP && f.Masquerade == plan.MasqueradeOffCluster,
		Pool:      pool(p, f.Policy),
		Refusal:   [...]program.Refusal{plan.Served: program.NoRefusal, plan.Reject: program.Reject, plan.Drop: program.Drop}[f.Unserved],
		Masquerade: [...]contents.Masquerade{
			plan.MasqueradeOffCluster: contents.NoMasquerade, plan.MasqueradeAlways: contents.MasqueradeAlways, plan.MasqueradeNode: contents.MasqueradeNode,
		}[f.Masquerade],
		Firewalled: f.Firewalled,

		HoldsRefusals: f.HoldsRefusals,
	}
}

// pool returns the pool that a policy means. When that pool is empty, the frontend has none: it only refuses.
func pool(p *plan.Port, policy plan.Policy) program.PoolChoice {
	switch {
	case policy == plan.ClusterPolicy && len(p.Cluster) > 0:
		return program.ClusterPool
	case policy == plan.LocalPolicy && len(p.Local) > 0:
		return program.LocalPool
	case policy == plan.SourcePolicy && len(p.Cluster)+len(p.Local) > 0:
		return program.BySource
	}
	return program.NoPool
}
