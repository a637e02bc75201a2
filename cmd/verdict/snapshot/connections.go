package snapshot

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// countConnections counts the connections that nft has translated, for each endpoint. An endpoint that is no longer in
// a pool, but still has connections, appears with weight 0, like an endpoint that drains in IPVS.
func (t *Table) countConnections(families []program.Family) {
	loads := map[conntrack.Route]conntrack.Load{}
	for _, f := range families {
		some, err := conntrack.Count(conntrack.Options{}, f)
		if err != nil {
			t.Notes = append(t.Notes, fmt.Sprintf("the connections of nft frontends are not shown: %v", err))
			return
		}
		maps.Copy(loads, some)
	}
	t.attach(loads)
}

func (t *Table) attach(loads map[conntrack.Route]conntrack.Load) {
	frontends, ranges := map[Place]*Frontend{}, map[netip.Addr][]*Frontend{}
	for i := range t.Frontends {
		fe := &t.Frontends[i]
		if fe.LastPort != 0 {
			ranges[fe.Address] = append(ranges[fe.Address], fe)
		}
		if fe.Engine == NFT {
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
			fe, end = rangeAt(ranges[route.Dst.Addr()], route)
		}
		if fe != nil {
			fe.endpoint(end).count(load)
		}
	}
}

// rangeAt finds the one of some ranges to which a connection goes, and its endpoint. Endpoints of a range have its first port.
func rangeAt(ranges []*Frontend, r conntrack.Route) (*Frontend, netip.AddrPort) {
	for _, fe := range ranges {
		if protocolNumber(fe.Protocol) == r.Protocol && fe.Port <= r.Dst.Port() && r.Dst.Port() <= fe.LastPort {
			return fe, netip.AddrPortFrom(r.Reply.Addr(), fe.Port)
		}
	}
	return nil, r.Reply
}

// PlaceOf is a place at an address.
func PlaceOf(at netip.AddrPort, protocol uint8) Place {
	return Place{Address: at.Addr(), Family: program.FamilyOf(at.Addr()).Version(), Protocol: protocol, Port: at.Port()}
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
