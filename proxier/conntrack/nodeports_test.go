package conntrack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestNodePortAddressesChange: which flows are stale after a node port has got and lost addresses.
func TestNodePortAddressesChange(t *testing.T) {
	const a, b = "10.0.0.1:53", "10.0.0.2:53"
	web, addrs := service("*4:30053>"+a, "*6:30053>[fd00::1]:53"), func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	tests := []struct {
		name        string
		was, is     []netip.Addr
		next        *plan.Service
		stale, good []string
	}{
		{"nothing changes", addrs("192.0.2.1"), addrs("192.0.2.1"), web, nil, []string{"192.0.2.1:30053 " + b, "192.0.2.1:30053 192.0.2.1:30053"}},
		{"an address comes", addrs("192.0.2.1"), addrs("192.0.2.1", "192.0.2.2"), web,
			[]string{"192.0.2.2:30053 192.0.2.2:30053", "192.0.2.2:30053 " + b},
			[]string{"192.0.2.2:30053 " + a, "192.0.2.1:30053 " + a, "192.0.2.2:30054 192.0.2.2:30054"}},
		{"an address goes", addrs("192.0.2.1", "192.0.2.2"), addrs("192.0.2.1"), web, []string{"192.0.2.2:30053 " + a},
			[]string{"192.0.2.2:30053 192.0.2.2:30053", "192.0.2.1:30053 " + a, "192.0.2.2:30054 " + a}},
		{"an address goes with the node port", addrs("192.0.2.1", "192.0.2.2"), addrs("192.0.2.1"), service("*4:30054>" + a),
			[]string{"192.0.2.2:30053 " + a, "192.0.2.1:30053 " + a}, []string{"192.0.2.1:30054 " + a}},
		{"another Service has the address", addrs("192.0.2.1", "192.0.2.2"), addrs("192.0.2.1"), service("*4:30053>"+a, "192.0.2.2:30053>"+b),
			[]string{"192.0.2.2:30053 " + a}, []string{"192.0.2.2:30053 " + b}},
		{"families do not mix", addrs("192.0.2.1", "fd00:1::1"), addrs("192.0.2.1"), web,
			[]string{"[fd00:1::1]:30053 [fd00::1]:53"}, []string{"192.0.2.1:30053 " + b}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := NewTracker()
			tr.Set(name("web"), web)
			tr.SetNodePortAddresses(tt.was)
			settle(tr)
			tr.Set(name("web"), tt.next)
			tr.SetNodePortAddresses(tt.is)
			for range 2 { // the first cleaning fails
				s := tr.all()
				for _, line := range tt.stale {
					if !s.has(flow(line), addrSet(tt.is)) {
						t.Errorf("%s is kept", line)
					}
				}
				for _, line := range tt.good {
					if s.has(flow(line), addrSet(tt.is)) {
						t.Errorf("%s is stale, want good", line)
					}
				}
			}
			tr.Done()
			if s := tr.all(); !s.Empty() || tr.removed != 0 {
				t.Errorf("after the cleaning, %d frontends are looked at, and %d count as removed", len(s.targets.made()), tr.removed)
			}
		})
	}
}

// TestAnotherAddressGoes: a frontend whose port is that of a node port is gone. The flows of the node port are looked at only if
// the node port has its address.
func TestAnotherAddressGoes(t *testing.T) {
	for addr, want := range map[string]int{"192.0.2.1": 2, "203.0.113.1": 1} {
		tr := NewTracker()
		tr.SetNodePortAddresses([]netip.Addr{netip.MustParseAddr("192.0.2.1")})
		tr.Set(name("web"), service("*4:30053>10.0.0.1:53", "*4:30054>10.0.0.1:54")) // nobody looks at the other one
		tr.Set(name("other"), service(addr+":30053>10.0.0.2:53"))
		settle(tr)
		tr.Set(name("other"), nil)
		if s := tr.all(); len(s.targets.made()) != want {
			t.Errorf("%s is gone: %d frontends are looked at, want %d", addr, len(s.targets.made()), want)
		}
	}
}

// TestNodePortAddressComesBack: an address that returns before the cleaning keeps the flows to good endpoints.
func TestNodePortAddressComesBack(t *testing.T) {
	at, tr := []netip.Addr{netip.MustParseAddr("192.0.2.1")}, NewTracker()
	tr.Set(name("web"), service("*4:30053>10.0.0.1:53"))
	tr.SetNodePortAddresses(at)
	settle(tr)
	tr.SetNodePortAddresses(nil)
	tr.SetNodePortAddresses(at)
	s := tr.all()
	if !s.has(flow("192.0.2.1:30053 192.0.2.1:30053"), addrSet(at)) || s.has(flow("192.0.2.1:30053 10.0.0.1:53"), addrSet(at)) {
		t.Error("the flows are not those of the node port")
	}
}

// TestNodePortTakesOver: an external IP with the address and port of a node port goes. The node port serves its flows.
func TestNodePortTakesOver(t *testing.T) {
	at, tr := []netip.Addr{netip.MustParseAddr("192.0.2.1")}, NewTracker()
	tr.SetNodePortAddresses(at)
	tr.Set(name("web"), service("*4:30053>10.0.0.1:53"))
	tr.Set(name("other"), service("192.0.2.1:30053>10.0.0.2:53"))
	settle(tr)
	tr.Set(name("other"), nil)
	s := tr.all()
	if !s.has(flow("192.0.2.1:30053 10.0.0.2:53"), addrSet(at)) || s.has(flow("192.0.2.1:30053 10.0.0.1:53"), addrSet(at)) {
		t.Error("the flows are not those of the node port")
	}
}

// TestAddressGoesWithExternalIP: an external IP with the address and port of a node port goes, and while its flows are cleaned, so
// does the address. The next cleaning looks at the flows that the node port had there meanwhile.
func TestAddressGoesWithExternalIP(t *testing.T) {
	at, tr := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}, NewTracker()
	tr.SetNodePortAddresses(at)
	tr.Set(name("web"), service("*4:30053>10.0.0.1:53"))
	tr.Set(name("other"), service("192.0.2.2:30053>10.0.0.2:53"))
	settle(tr)
	tr.Set(name("other"), nil)
	tr.all()
	tr.SetNodePortAddresses(at[:1])
	tr.Done()
	s := tr.all()
	if !s.has(flow("192.0.2.2:30053 10.0.0.1:53"), addrSet(at[:1])) || s.has(flow("192.0.2.1:30053 10.0.0.1:53"), addrSet(at[:1])) {
		t.Error("the flows to the address that is gone stay, or others go")
	}
}

// TestFormerNodePort: an address that left while no proxy ran is that of a removed frontend.
func TestFormerNodePort(t *testing.T) {
	at, tr := []netip.Addr{netip.MustParseAddr("192.0.2.1")}, NewTracker(frontend("192.0.2.1:30053"), frontend("192.0.2.2:30053"))
	tr.Set(name("web"), service("*4:30053>10.0.0.1:53"))
	tr.SetNodePortAddresses(at)
	s := tr.all()
	if !s.has(flow("192.0.2.2:30053 10.0.0.1:53"), addrSet(at)) || s.has(flow("192.0.2.1:30053 10.0.0.1:53"), addrSet(at)) {
		t.Error("the flows of a former node port are not judged by its address")
	}
}

// TestSuccessorOfAnotherNamespace: what one namespace gives up is served by another one, whose cleaning comes first. The later
// cleaning of the first namespace must know that the flows are good.
func TestSuccessorOfAnotherNamespace(t *testing.T) {
	for gone, successor := range map[string]string{
		"192.168.0.1:30053": "*4:30053", "*4:30053": "192.168.0.1:30053", "192.168.0.1:30000-30100": "*4:30053",
		"192.168.0.1:30053 ": "192.168.0.1:30000-30100", "192.168.0.1:30000-30100 ": "192.168.0.1:30053",
		"192.168.0.1:30050-30060": "192.168.0.1:30000-30100", "*4:30053 ": "192.168.0.1:30000-30100",
	} {
		tr := NewTracker()
		tr.SetNodePortAddresses(nodePortAddrs)
		a, b := state.Name{Namespace: "a", Name: "web"}, state.Name{Namespace: "b", Name: "web"}
		ends := func(of string, i int) *plan.Service {
			return service(fmt.Sprintf("%s>10.0.0.%d:%s", of, i, firstPort(of)))
		}
		tr.Set(a, ends(gone, 1))
		settle(tr)
		tr.Set(a, nil)
		tr.Set(b, ends(successor, 2))
		tr.Stale("b")
		tr.Done()
		s := tr.Stale("a")
		for i, want := range map[int]bool{1: true, 2: false} {
			if got := s.has(flow(fmt.Sprintf("192.168.0.1:30053 10.0.0.%d:30053", i)), addrSet(nodePortAddrs)); got != want {
				t.Errorf("%s after %s: flows to endpoint %d are stale: %t", successor, gone, i, got)
			}
		}
	}
}

// firstPort makes flows keep their port: endpoints of a range are known by its first one.
func firstPort(of string) string {
	port, _, _ := strings.Cut(of[strings.LastIndex(of, ":")+1:], "-")
	return strings.TrimSpace(port)
}
