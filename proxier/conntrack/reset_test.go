package conntrack

import (
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestReset: open TCP connections of a Service that wants it are stale if their endpoint is gone. Nothing else of TCP is.
func TestReset(t *testing.T) {
	at, nodePort := netip.MustParseAddrPort("10.96.0.10:80"), netip.MustParseAddrPort("192.0.2.1:30080")
	endpoint := func(i byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, i}), 8080) }
	planned := func(resets, ipvs bool, keep ...byte) *plan.Service {
		p := plan.Port{Family: state.IPv4, Protocol: state.TCP, Resets: resets, Frontends: []plan.Frontend{
			{Frontend: serviceport.Frontend{Addr: at.Addr(), Port: 80, IPVS: ipvs}}, {Frontend: serviceport.Frontend{Port: 30080, IPVS: ipvs}},
		}}
		for _, i := range keep {
			p.Serving = append(p.Serving, endpoint(i))
		}
		return &plan.Service{Name: name("web"), Ports: []plan.Port{p}}
	}
	tr := NewTracker()
	settled := func(p *plan.Service) {
		tr.Set(name("web"), p)
		tr.all()
		tr.Done()
	}
	// finds reports whether the connections to an endpoint are stale, at both frontends.
	finds := func(i byte) bool {
		t.Helper()
		s := tr.all()
		found := 0
		for _, to := range []netip.AddrPort{at, nodePort} {
			flow := Flow{Dst: to, Reply: endpoint(i), DNAT: true, TCP: true}
			nodes := map[netip.Addr]bool{nodePort.Addr(): true}
			if s.has(flow, nodes) {
				found++
			}
			for _, other := range []Flow{
				{Dst: to, Reply: endpoint(i), DNAT: true},                                                  // UDP
				{Dst: to, Reply: to, TCP: true},                                                            // not translated
				{Dst: to, Reply: endpoint(i), TCP: true},                                                   // by IPVS
				{Dst: netip.MustParseAddrPort("10.96.0.11:80"), Reply: endpoint(i), DNAT: true, TCP: true}, // another Service
			} {
				if s.has(other, nodes) {
					t.Errorf("%+v is stale", other)
				}
			}
		}
		if found == 1 {
			t.Error("one frontend differs from the other")
		}
		return found == 2
	}
	settled(planned(true, false, 1, 2))
	for _, tt := range []struct {
		name  string
		now   *plan.Service
		stale bool
	}{
		{"nothing changes", planned(true, false, 1, 2), false},
		{"an endpoint is gone", planned(true, false, 2), true},
		{"all are gone", planned(true, false), true},
		{"nobody wants it any more", planned(false, false, 2), false},
		{"IPVS serves it", planned(true, true, 2), false},
		{"the Service is gone", nil, false},
	} {
		settled(planned(true, false, 1, 2))
		tr.Set(name("web"), tt.now)
		if got := finds(1); got != tt.stale {
			t.Errorf("%s: stale %t", tt.name, got)
		}
		if tr.Done(); tt.now == nil && len(tr.frontends)+len(tr.suspects)+tr.removed > 0 {
			t.Errorf("%s: the Tracker remembers %v", tt.name, tr.frontends)
		}
	}
	// A cleaning that is running leaves connections alone as soon as nobody wants it any more.
	settled(planned(true, false, 1, 2))
	tr.Set(name("web"), planned(true, false, 2))
	running := tr.all()
	tr.Set(name("web"), planned(false, false, 2))
	if running.has(Flow{Dst: at, Reply: endpoint(1), DNAT: true, TCP: true}, nil) {
		t.Error("a cleaning goes on after the Service does not want it any more")
	}
	// A new process ends those of endpoints that went while none ran.
	tr = NewTracker()
	tr.Set(name("web"), planned(true, false, 2))
	if !finds(1) || finds(2) {
		t.Error("a new process does not judge by the present endpoints")
	}
}
