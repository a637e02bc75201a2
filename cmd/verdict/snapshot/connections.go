package snapshot

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// countConnections counts the connections that nft has translated, for each endpoint. An endpoint that is no longer in
// a pool, but still has connections, appears with weight 0, like an endpoint that drains in IPVS.
func (t *Table) countConnections(families []program.Family) {
	loads := map[conntrack.Route]conntrack.Load{}
	for _, f := range families {
		family := state.IPv4
		if f == program.IPv6 {
			family = state.IPv6
		}
		some, err := conntrack.Count(conntrack.Options{}, family)
		if err != nil {
			t.Notes = append(t.Notes, fmt.Sprintf("the connections of nft frontends are not shown: %v", err))
			return
		}
		for r, l := range some {
			loads[r] = l
		}
	}
	t.attach(loads)
}

func (t *Table) attach(loads map[conntrack.Route]conntrack.Load) {
	frontends := map[Place]*Frontend{}
	for i := range t.Frontends {
		if fe := &t.Frontends[i]; fe.Engine == NFT {
			frontends[fe.place()] = fe
			for j := range fe.Endpoints {
				fe.Endpoints[j].Active, fe.Endpoints[j].Inactive = new(int), new(int)
			}
		}
	}
	for route, load := range loads {
		at := PlaceOf(route.Dst, route.Protocol)
		fe := frontends[at]
		if fe == nil && slices.Contains(t.NodePortAddresses, at.Address) {
			fe = frontends[atNodePort(at)]
		}
		end := route.Reply
		if fe == nil {
			fe, end = t.rangeAt(route)
		}
		if fe != nil {
			fe.endpoint(end).count(load)
		}
	}
}

// rangeAt finds the range to which a connection goes, and its endpoint. Endpoints of a range have its first port.
func (t *Table) rangeAt(r conntrack.Route) (*Frontend, netip.AddrPort) {
	i := slices.IndexFunc(t.Frontends, func(fe Frontend) bool {
		return fe.LastPort != 0 && fe.Address == r.Dst.Addr() && protocolNumber(fe.Protocol) == r.Protocol &&
			fe.Port <= r.Dst.Port() && r.Dst.Port() <= fe.LastPort
	})
	if i < 0 {
		return nil, r.Reply
	}
	return &t.Frontends[i], netip.AddrPortFrom(r.Reply.Addr(), t.Frontends[i].Port)
}

// PlaceOf is a place at an address.
func PlaceOf(at netip.AddrPort, protocol uint8) Place {
	return Place{Address: at.Addr(), Family: familyName(program.FamilyOf(at.Addr())), Protocol: protocol, Port: at.Port()}
}

// atNodePort is the node port of a place.
func atNodePort(p Place) Place {
	p.Address = netip.Addr{}
	return p
}

// count adds to the numbers, because the connections to a node port come through several addresses.
func (e *Endpoint) count(l conntrack.Load) {
	if e.Active == nil {
		e.Active, e.Inactive = new(int), new(int)
	}
	*e.Active += l.Active
	*e.Inactive += l.Inactive
}
