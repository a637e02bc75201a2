package claims

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// spareHost has the cluster IPs of a plan that are addresses of this node served like external IPs, at its ports only. The
// unused ports of other cluster IPs are refused. Here, programs of the node listen at those ports: a cluster IP would lock
// everybody out of the node.
func (c *Claims) spareHost(p *plan.Service) []state.Problem {
	found := state.ProblemList{Object: state.Object{Kind: "Service", Name: p.Name}}
	var reported []netip.Addr
	for i := range p.Ports {
		for j := range p.Ports[i].Frontends {
			fe := &p.Ports[i].Frontends[j]
			if fe.Kind != plan.ClusterIP || !c.atHost(fe.Addr) {
				continue
			}
			fe.Masquerade = plan.MasqueradeAlways
			if !slices.Contains(reported, fe.Addr) {
				reported = append(reported, fe.Addr)
				found.Add(fe.Kind.Field(), "%s is an address of this node: its other ports stay open, and all connections to the "+
					"Service are masqueraded there", fe.Addr)
			}
		}
	}
	return found.Problems()
}

func (c *Claims) atHost(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(c.host, a, netip.Addr.Compare)
	return found
}
