package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func frontend(addr string) Frontend {
	a := netip.MustParseAddrPort(addr)
	return Frontend{Addr: a.Addr(), Port: a.Port(), Family: state.FamilyOf(a.Addr())}
}

// show prints frontends for comparison.
func show(list []Frontend) (out []string) {
	for _, f := range list {
		out = append(out, fmt.Sprintf("%v %d %v", f.Addr, f.Port, f.Family.Version()))
	}
	return out
}

func TestFormerAfterAnError(t *testing.T) {
	broken := errors.New("broken")
	loads := map[Route]Load{}
	for port := range uint16(10) {
		loads[Route{Protocol: unix.IPPROTO_UDP, Dst: netip.AddrPortFrom(netip.MustParseAddr("10.96.0.10"), port)}] = Load{}
	}
	calls := 0
	_, err := formerIn(state.IPv4, loads, func(Frontend) (bool, error) { calls++; return false, broken })
	if !errors.Is(err, broken) || calls != 1 {
		t.Errorf("error %v after %d calls, want one", err, calls)
	}
}

// TestTrackerWithFormerFrontends: former frontends that no Service has count as removed, until the first Done.
func TestTrackerWithFormerFrontends(t *testing.T) {
	const gone, kept = "10.96.0.10:53", "10.96.0.11:53"
	nodePort := Frontend{Port: 30053, Family: state.IPv4}
	for _, tt := range []struct {
		name string
		now  *plan.Service
	}{
		{"one Service is left", service(kept + ">10.0.0.1:53")},
		{"none is left", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tracker := NewTracker(frontend(gone), frontend(kept), nodePort)
			tracker.Set(name("web"), tt.now)
			for range 2 { // the first cleaning fails
				s := tracker.all()
				for line, stale := range map[string]bool{
					gone + " 10.0.0.1:53":            true,
					gone + " " + gone:                false,
					kept + " 10.0.0.1:53":            tt.now == nil,
					kept + " 10.0.0.2:53":            true,
					"192.168.0.1:30053 10.0.0.1:53":  true,
					"198.51.100.1:30053 10.0.0.1:53": false,
					"10.96.0.99:53 10.0.0.1:53":      false,
				} {
					if got := s.has(flow(line), addrSet(nodePortAddrs)); got != stale {
						t.Errorf("%s: stale %t", line, got)
					}
				}
			}
			tracker.Done()
			if s := tracker.all(); !s.Empty() {
				t.Error("former frontends are cleaned again")
			}
		})
	}
}
