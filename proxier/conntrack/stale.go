package conntrack

import (
	"net/netip"
	"slices"
	"sync/atomic"

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
	TCP     bool // otherwise UDP
}

// Flow is an entry of the kernel's table, as far as it matters here.
type Flow struct {
	Dst   netip.AddrPort // where the client sends to
	Reply netip.AddrPort // where the answers come from: the endpoint, or Dst itself if nothing is translated
	DNAT  bool           // nf_tables has translated it; false for flows of IPVS
	Zone  uint16
	TCP   bool // otherwise UDP
}

// Stale is which flows are stale after a pass.
type Stale struct {
	targets map[Frontend]target
	// unanswered has, by frontend, endpoints whose connections without an answer are to be deleted. The lists are sorted.
	unanswered map[Frontend][]netip.AddrPort
	revision   uint64 // of the Tracker when it made this

	ranges, unansweredRanges ranges // of targets and of unanswered
}

// ranges are frontends with ranges of ports, by address. They do not overlap.
type ranges map[netip.Addr][]Frontend

func rangesOf[V any](of map[Frontend]V) ranges {
	out := ranges{}
	for f := range of {
		if f.EndPort != 0 {
			out[f.Addr] = append(out[f.Addr], f)
		}
	}
	return out
}

// at finds the range that has a port.
func (r ranges) at(f Frontend) (Frontend, bool) {
	for _, is := range r[f.Addr] {
		if is.TCP == f.TCP && is.Port <= f.Port && f.Port <= is.EndPort {
			return is, true
		}
	}
	return Frontend{}, false
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

// target is a frontend that may have stale flows.
type target struct {
	removed bool
	ipvs    bool             // IPVS serves it
	good    []netip.AddrPort // endpoints whose flows stay, sorted
	changed *atomic.Uint64   // the Tracker's revision when the frontend changed last
}

// Empty reports whether there is nothing to look for.
func (s *Stale) Empty() bool { return len(s.targets)+len(s.unanswered) == 0 }

func (s *Stale) hasUnanswered(family state.Family) bool {
	for f := range s.unanswered {
		if f.Family == family {
			return true
		}
	}
	return false
}

// frontends lists the frontends of a family and a protocol that may have stale flows.
func (s *Stale) frontends(family state.Family, tcp bool) (list []Frontend) {
	for f := range s.targets {
		if f.Family == family && f.TCP == tcp {
			list = append(list, f)
		}
	}
	return list
}

// has reports whether a flow is stale. It skips frontends that changed since the Tracker made s: the kernel may have
// newer rules already, and flows of these rules may go to endpoints that s does not know. The next cleaning looks at
// them. The Tracker records a change before the kernel gets the new rules, so has knows of it before it sees a flow of
// the new rules.
//
// Node ports exist only at the given addresses; at another address, the same port belongs to another program. A removed
// frontend may have the address and port of a node port, which serves its flows then.
func (s *Stale) has(f Flow, nodePortAddrs map[netip.Addr]bool) bool {
	at := Frontend{Addr: f.Dst.Addr(), Port: f.Dst.Port(), Family: state.FamilyOf(f.Dst.Addr()), TCP: f.TCP}
	t, ok := s.targets[at]
	if (!ok || t.removed) && nodePortAddrs[f.Dst.Addr()] {
		at.Addr = netip.Addr{}
		if nodePort, found := s.targets[at]; found {
			t, ok = nodePort, true
		}
	}
	if !ok || t.removed {
		if is, found := s.ranges.at(Frontend{Addr: f.Dst.Addr(), Port: f.Dst.Port(), TCP: f.TCP}); found {
			t, ok, f = s.targets[is], true, f.atFirstPort(is.Port)
		}
	}
	return ok && t.stale(f) && t.changed.Load() <= s.revision
}

func (t *target) stale(f Flow) bool {
	_, good := slices.BinarySearchFunc(t.good, f.Reply, netip.AddrPort.Compare)
	good = good && !t.removed
	translated := f.Reply != f.Dst
	if f.TCP {
		return translated && f.DNAT && !good // others are not ours
	}
	if !translated {
		// An endpoint may have the address and port of its frontend: then the kernel has nothing to translate.
		//
		// Other software (OVS, SR-IOV) tracks the same packets in its own zones, before or after our translation. So a
		// flow without a translation in such a zone does not mean that our rules did not translate it.
		return !good && !t.removed && f.Zone == 0
	}
	if !f.DNAT && !t.ipvs {
		// IPVS made the flow, and does not serve the frontend any more: the packets go nowhere.
		return true
	}
	return !good
}
