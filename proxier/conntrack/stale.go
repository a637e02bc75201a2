// Package conntrack removes UDP flows from the kernel's connection tracking table that would go on to where they no
// longer belong: NAT rules see only the first packet of a flow, and a client that keeps sending keeps its flow forever.
//
// Tracker (pure) finds out which flows went stale by a pass, Cleaner deletes those from the kernel. TCP and SCTP are never
// touched: their ends notice by themselves, and an orderly close through a draining endpoint must not be cut
// (k/k #101607).
//
// A flow is stale when it entered
//   - through a frontend that exists, and does not go to an endpoint of it whose flows are still good. That includes
//     flows that were there before the frontend was, and so are not translated at all;
//   - through a frontend that IPVS served and serves no longer: IPVS carried its packets, and nobody does so now;
//   - through a frontend that was removed, and was translated. Upstream leaves these (since 1.32); but a UDP flow has
//     no end, so an address that was taken away would go on working for whoever used it, and a moved node port would
//     keep its clients.
//
// Flows to good endpoints survive whatever policy or topology now say about new ones.
//
// Count is for people who want to see who is connected to what; nothing here depends on it.
package conntrack

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Frontend is where flows enter.
type Frontend struct {
	Addr   netip.Addr // the zero Addr: any node-port address
	Port   uint16
	Family state.Family
}

// Flow is what the judgment needs to know of an entry of the table.
type Flow struct {
	Dst   netip.AddrPort // where the client sends to
	Reply netip.AddrPort // who answers: the endpoint, or Dst itself when nothing is translated
	DNAT  bool           // translated by nf_tables; what IPVS sends on is not
	Zone  uint16
}

// Stale says which flows are stale after a pass.
type Stale struct {
	targets  map[Frontend]target
	revision uint64 // of the Tracker when it made this
}

// target is a frontend whose flows have to be looked at.
type target struct {
	removed bool
	ipvs    bool             // served by IPVS
	good    []netip.AddrPort // sorted: flows to these stay
	changed *atomic.Uint64   // the Tracker's revision when the frontend changed last
}

// Empty tells whether there is nothing to look for.
func (s *Stale) Empty() bool { return len(s.targets) == 0 }

// frontends lists the frontends of a family that have to be looked at.
func (s *Stale) frontends(family state.Family) (list []Frontend) {
	for f := range s.targets {
		if f.Family == family {
			list = append(list, f)
		}
	}
	return list
}

// has judges a flow. It leaves out flows of a frontend that changed since the Tracker made s: the kernel may have newer
// rules already, and flows that those made may go to endpoints that s does not know. The next cleaning looks at them. The
// Tracker records a change before the kernel gets the new rules, so has knows of it before it sees a flow of the new rules.
//
// Node ports exist only on the given addresses: elsewhere the same number is somebody else's.
func (s *Stale) has(f Flow, nodePortAddrs map[netip.Addr]bool) bool {
	at := Frontend{Addr: f.Dst.Addr(), Port: f.Dst.Port(), Family: state.FamilyOf(f.Dst.Addr())}
	t, ok := s.targets[at]
	if !ok && nodePortAddrs[f.Dst.Addr()] {
		at.Addr = netip.Addr{}
		t, ok = s.targets[at]
	}
	return ok && t.stale(f) && t.changed.Load() <= s.revision
}

func (t *target) stale(f Flow) bool {
	translated := f.Reply != f.Dst
	if !translated {
		// In zones of their own others (OVS, SR-IOV) track the same packets before or after our translation; a flow
		// that is not translated there says nothing about us.
		return !t.removed && f.Zone == 0
	}
	if t.removed || !f.DNAT && !t.ipvs {
		// Without IPVS behind the frontend nobody sends a flow on that IPVS has balanced.
		return true
	}
	_, good := slices.BinarySearchFunc(t.good, f.Reply, netip.AddrPort.Compare)
	return !good
}
