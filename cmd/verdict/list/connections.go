package list

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// countConnections counts the connections that nft has translated, for each endpoint. An endpoint that is no longer in
// a pool, but still has connections, appears with weight 0, like an endpoint that drains in IPVS.
func (t *table) countConnections(families []nft.Family) {
	loads := map[conntrack.Route]conntrack.Load{}
	for _, f := range families {
		some, err := conntrack.Count(conntrack.Options{}, stateFamily(f))
		if err != nil {
			t.notes = append(t.notes, fmt.Sprintf("the connections of nft frontends are not shown: %v", err))
			return
		}
		for r, l := range some {
			loads[r] = l
		}
	}
	t.attach(loads)
}

func stateFamily(f nft.Family) state.Family {
	if f == nft.IPv6 {
		return state.IPv6
	}
	return state.IPv4
}

// entrance is the original destination of a connection.
type entrance struct {
	family, protocol string
	addr             netip.Addr
	port             uint16
}

func (t *table) attach(loads map[conntrack.Route]conntrack.Load) {
	byEntrance := map[entrance]*frontend{}
	for i := range t.Frontends {
		if fe := &t.Frontends[i]; fe.Engine == engineNFT {
			byEntrance[entrance{family: fe.Family, protocol: fe.Protocol, addr: fe.Address, port: fe.Port}] = fe
			for j := range fe.Endpoints {
				fe.Endpoints[j].Active, fe.Endpoints[j].Inactive = new(int), new(int)
			}
		}
	}
	for route, load := range loads {
		at := entrance{
			family: familyName(nft.FamilyOf(route.Dst.Addr())), protocol: protocolName(route.Protocol),
			addr: route.Dst.Addr(), port: route.Dst.Port(),
		}
		fe := byEntrance[at]
		if fe == nil && slices.Contains(t.NodePortAddresses, at.addr) {
			at.addr = netip.Addr{}
			fe = byEntrance[at]
		}
		if fe != nil {
			fe.endpoint(route.Reply).count(load)
		}
	}
}

// count adds to the numbers, because the connections to a node port come through several addresses.
func (e *endpoint) count(l conntrack.Load) {
	if e.Active == nil {
		e.Active, e.Inactive = new(int), new(int)
	}
	*e.Active += l.Active
	*e.Inactive += l.Inactive
}
