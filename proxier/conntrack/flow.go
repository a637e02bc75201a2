package conntrack

import (
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Frontend is an address and port that clients send to.
type Frontend struct {
	Addr netip.Addr // the zero Addr: any node-port address
	Port uint16
	// EndPort is the last port of a range; 0: the frontend has one port. Flows of a range keep their port, and its endpoints
	// are known by the first one.
	EndPort uint16
	Family  state.Family
	TCP     bool // neither this one nor SCTP: UDP
	SCTP    bool
}

func frontendOf(port *plan.Port, f *plan.Frontend) Frontend {
	return Frontend{
		Addr: f.Addr, Port: f.Port, EndPort: f.EndPort, Family: port.Family, TCP: port.Protocol == state.TCP, SCTP: port.Protocol == state.SCTP,
	}
}

// allPorts stands for all ports of the protocol at an address.
func (f Frontend) allPorts(at netip.Addr) Frontend {
	f.Addr, f.Port, f.EndPort = at, 0, 0
	return f
}

// Flow is an entry of the kernel's table, as far as it matters here.
type Flow struct {
	Src   netip.Addr     // the client
	Dst   netip.AddrPort // where the client sends to
	Reply netip.AddrPort // where the answers come from: the endpoint, or Dst itself if nothing is translated
	DNAT  bool           // nf_tables has translated it; false for flows of IPVS
	Zone  uint16
	TCP   bool // neither this one nor SCTP: UDP
	SCTP  bool
}

// atFirstPort is a flow to a range as if it went to the first port. One that has not kept its port goes to no endpoint.
func (f Flow) atFirstPort(port uint16) Flow {
	if f.Reply.Port() == f.Dst.Port() {
		f.Reply = netip.AddrPortFrom(f.Reply.Addr(), port)
	} else {
		f.Reply = netip.AddrPortFrom(f.Reply.Addr(), 0)
	}
	f.Dst = netip.AddrPortFrom(f.Dst.Addr(), port)
	return f
}

// Route is the way of translated flows: from a frontend to an endpoint.
type Route struct {
	Protocol uint8
	Dst      netip.AddrPort // where the clients send to
	Reply    netip.AddrPort // where the answers come from
}

// Query names the flows of one client to one destination.
type Query struct {
	Protocol uint8
	Src      netip.Addr
	SrcPort  uint16 // 0: all
	Dst      netip.AddrPort
}

func (q *Query) family() state.Family { return state.FamilyOf(q.Dst.Addr()) }
