package dataplane

import (
	"fmt"
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// answers returns the external address that endpoints answer with when this node continues a connection of another node
// (--fleet). Only a port that hashes clients has one: the nodes of a fleet share nothing else. It notes why a connection
// cannot go on.
func answers(port *plan.Port, m *method) (at netip.AddrPort) {
	if port.Protocol != state.TCP || !m.nft.Hashes() {
		return at
	}
	if ranged(port) {
		m.note(fmt.Sprintf("port %s is a range, whose connections end with this node in spite of --fleet", port.Name))
		return at
	}
	masqueraded, several := 0, 0
	for i := range port.Frontends {
		fe := &port.Frontends[i]
		switch {
		case fe.Kind != plan.ExternalIP && fe.Kind != plan.LoadBalancer:
		case m.ipvs:
			m.note(fmt.Sprintf("IPVS serves port %s; only nft continues connections of other nodes (--fleet)", port.Name))
			return netip.AddrPort{}
		case fe.Masquerade == plan.MasqueradeAlways:
			masqueraded++
		case at.IsValid():
			several++
		default:
			at = netip.AddrPortFrom(fe.Addr, fe.Port)
		}
	}
	switch {
	case several > 0:
		m.note(fmt.Sprintf("port %s has %d external addresses of one family; with --fleet, what endpoints send in connections "+
			"of other nodes is not translated, because it could belong to any of them", port.Name, several+1))
		return netip.AddrPort{}
	case masqueraded > 0:
		m.note(fmt.Sprintf("connections to port %s are masqueraded, so they end with this node in spite of --fleet; "+
			"externalTrafficPolicy Local keeps the client's address", port.Name))
	}
	return at
}
