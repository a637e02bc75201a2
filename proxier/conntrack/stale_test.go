package conntrack

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// service makes a plan from lines "frontends > endpoints". A frontend is addr:port, or *4:port and *6:port for a node
// port. The word "tcp" or "sctp" before the frontends makes it a port of that protocol, and "from=RANGE,RANGE" limits those that
// have an address.
func service(lines ...string) *plan.Service {
	s := &plan.Service{Name: name("web")}
	for _, line := range lines {
		left, right, _ := strings.Cut(line, ">")
		p, ipvs, unchanged := plan.Port{Family: state.IPv4, Protocol: state.UDP}, false, false
		var sources []netip.Prefix
		for _, w := range strings.Fields(left) {
			switch {
			case strings.HasPrefix(w, "from="):
				for text := range strings.SplitSeq(w[len("from="):], ",") {
					sources = append(sources, netip.MustParsePrefix(text))
				}
			case w == "tcp":
				p.Protocol = state.TCP
			case w == "sctp":
				p.Protocol = state.SCTP
			case w == "ipvs" || w == "unchanged":
				ipvs, unchanged = true, w == "unchanged"
			case strings.HasPrefix(w, "*"):
				p.Family = map[byte]state.Family{'4': state.IPv4, '6': state.IPv6}[w[1]]
				fe := plan.Frontend{Kind: plan.NodePort}
				fmt.Sscan(w[3:], &fe.Port)
				p.Frontends = append(p.Frontends, fe)
			default:
				at, end, _ := strings.Cut(w, "-")
				a := netip.MustParseAddrPort(at)
				p.Family = state.FamilyOf(a.Addr())
				fe := plan.Frontend{Frontend: serviceport.Frontend{Addr: a.Addr(), Port: a.Port()}}
				fmt.Sscan(end, &fe.EndPort)
				p.Frontends = append(p.Frontends, fe)
			}
		}
		for i := range p.Frontends {
			fe := &p.Frontends[i]
			fe.IPVS, fe.Unchanged, fe.Sources = ipvs, unchanged, sources
			fe.Firewalled = sources != nil && fe.Addr.IsValid()
		}
		for _, w := range strings.Fields(right) {
			p.Serving = append(p.Serving, netip.MustParseAddrPort(w))
		}
		s.Ports = append(s.Ports, p)
	}
	return s
}

func name(n string) state.Name { return state.Name{Namespace: "shop", Name: n} }

// flow reads "destination answerer [zone]", or "destination answerer ipvs" for a flow that IPVS has balanced.
func flow(line string) (f Flow) {
	w := strings.Fields(line)
	f.Dst, f.Reply = netip.MustParseAddrPort(w[0]), netip.MustParseAddrPort(w[1])
	f.DNAT = f.Reply != f.Dst
	if len(w) > 2 && w[2] == "ipvs" {
		f.DNAT = false
	} else if len(w) > 2 {
		fmt.Sscan(w[2], &f.Zone)
	}
	return f
}

// latest has what each Tracker began to clean last.
var latest sync.Map

func (t *Tracker) noted(s Stale) Stale { latest.Store(t, &s); return s }

// Stale and LeftOut begin a cleaning, which Done ends.
func (t *Tracker) Stale(namespaces ...string) Stale   { return t.noted(t.Begin(namespaces...)) }
func (t *Tracker) LeftOut(namespaces ...string) Stale { return t.noted(t.BeginLeftOut(namespaces...)) }

func (t *Tracker) Done() {
	s, _ := latest.Load(t)
	t.End(s.(*Stale))
}

// settle makes a Tracker that has cleaned everything that was set.
func settle(t *Tracker) {
	t.all()
	t.Done()
}

// Empty reports whether there is nothing to look for.
func (s *Stale) Empty() bool { return len(s.targets.made())+len(s.unanswered.made()) == 0 }

// made is the index of the lists.
func (x *index) made() map[Frontend]target {
	x.fill()
	return x.at
}

// all is Stale for all namespaces.
func (t *Tracker) all() Stale { return t.Stale(t.Waiting()...) }

// nodePortAddrs are the addresses of the node in all tests.
var nodePortAddrs = []netip.Addr{netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("fd00:1::1")}

func addrSet(list []netip.Addr) map[netip.Addr]bool {
	m := map[netip.Addr]bool{}
	for _, a := range list {
		m[a] = true
	}
	return m
}

func TestStale(t *testing.T) {
	const vip, a, b, c = "10.96.0.10:53", "10.0.0.1:5353", "10.0.0.2:5353", "10.0.0.3:5353"
	var nothing *plan.Service
	tests := []struct {
		name        string
		old, new    *plan.Service
		stale, good []string
	}{
		{"nothing changed", service(vip + ">" + a), service(vip + ">" + a), nil,
			[]string{vip + " " + a, vip + " " + b, vip + " " + vip}},
		{"an endpoint was added", service(vip + ">" + a), service(vip + ">" + a + " " + b), nil,
			[]string{vip + " " + a, vip + " " + vip}},
		{"an endpoint was removed", service(vip + ">" + a + " " + b), service(vip + ">" + b),
			[]string{vip + " " + a, vip + " " + c, vip + " " + vip},
			[]string{vip + " " + b, "10.96.0.10:54 " + a, "10.96.0.11:53 " + a}},
		{"an endpoint was replaced", service(vip + ">" + a), service(vip + ">" + b),
			[]string{vip + " " + a}, []string{vip + " " + b}},
		{"an endpoint's port changed", service(vip + ">" + a), service(vip + ">10.0.0.1:9999"),
			[]string{vip + " " + a}, []string{vip + " 10.0.0.1:9999"}},
		{"scaled to zero", service(vip + ">" + a), service(vip + ">"), []string{vip + " " + a, vip + " " + vip}, nil},
		{"scaled from zero: flows that went nowhere", service(vip + ">"), service(vip + ">" + a),
			[]string{vip + " " + vip, vip + " " + b}, []string{vip + " " + a, vip + " " + vip + " 7"}},
		{"a frontend was added", service(), service(vip + ">" + a),
			[]string{vip + " " + vip, vip + " " + b}, []string{vip + " " + a}},
		{"a frontend was removed", service(vip + " 203.0.113.1:53>" + a), service(vip + ">" + a),
			[]string{"203.0.113.1:53 " + a, "203.0.113.1:53 " + b}, []string{vip + " " + a, "203.0.113.1:53 203.0.113.1:53"}},
		{"the Service was removed", service(vip + ">" + a), nothing, []string{vip + " " + a}, []string{vip + " " + vip}},
		{"a node port moved", service("*4:30053>" + a), service("*4:30054>" + a),
			[]string{"192.168.0.1:30053 " + a, "192.168.0.2:30053 " + a, "192.168.0.1:30054 192.168.0.1:30054"},
			[]string{"192.168.0.1:30054 " + a, "192.168.0.9:30053 " + a, "192.168.0.1:30053 192.168.0.1:30053"}},
		{"a node port without endpoints", service("*4:30053>" + a), service("*4:30053>"),
			[]string{"192.168.0.1:30053 " + a, "192.168.0.1:30053 192.168.0.1:30053"},
			[]string{"192.168.0.9:30053 " + a, "192.168.0.9:30053 192.168.0.9:30053"}},
		{"IPv6", service("[fd00::10]:53>[fd00::1]:5353", "*6:30053>[fd00::1]:5353"), service("[fd00::10]:53>[fd00::2]:5353", "*6:30053>"),
			[]string{"[fd00::10]:53 [fd00::1]:5353", "[fd00:1::1]:30053 [fd00::1]:5353"}, []string{"[fd00::10]:53 [fd00::2]:5353"}},
		{"families do not mix", service("*4:30053>" + a), service("*4:30053>"), nil,
			[]string{"[fd00:1::1]:30053 [fd00::1]:5353"}},
		{"other protocols are not looked at", service("tcp " + vip + ">" + a), service("tcp " + vip + ">"), nil,
			[]string{vip + " " + a}},
		{"IPVS serves it now: flows that go to good endpoints stay", service(vip + ">" + a + " " + b), service("ipvs " + vip + ">" + a),
			[]string{vip + " " + b, vip + " " + b + " ipvs"}, []string{vip + " " + a, vip + " " + a + " ipvs"}},
		{"IPVS passes it on without NAT: its flows are not translated", service(vip + ">" + a + " " + b), service("unchanged " + vip + ">" + a),
			[]string{vip + " " + b}, []string{vip + " " + a, vip + " " + vip}},
		{"IPVS passed it on without NAT", service("unchanged " + vip + ">" + a), service("ipvs " + vip + ">" + a),
			[]string{vip + " " + vip}, []string{vip + " " + a}},
		{"IPVS served it: what it has balanced goes nowhere", service("ipvs " + vip + ">" + a), service(vip + ">" + a),
			[]string{vip + " " + a + " ipvs"}, []string{vip + " " + a}},
		{"an endpoint has the address and port of the frontend", service(vip + " 10.96.0.11:53>" + vip + " " + a), service(vip + " 10.96.0.11:53>" + vip),
			[]string{vip + " " + a, "10.96.0.11:53 10.96.0.11:53"}, []string{vip + " " + vip, "10.96.0.11:53 " + vip}},
		{"translated in a zone of its own", service(vip + ">" + a), service(vip + ">" + b), []string{vip + " " + a + " 7"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := NewTracker()
			tr.Set(name("web"), tt.old)
			settle(tr)
			tr.Set(name("web"), tt.new)
			s := tr.all()
			for _, line := range tt.stale {
				if !s.has(flow(line), addrSet(nodePortAddrs)) {
					t.Errorf("%s is kept", line)
				}
			}
			for _, line := range tt.good {
				if s.has(flow(line), addrSet(nodePortAddrs)) {
					t.Errorf("%s is stale, want good", line)
				}
			}
			if s.Empty() != (len(tt.stale) == 0 && !strings.HasPrefix(tt.name, "families")) {
				t.Errorf("Empty() = %v", s.Empty())
			}
		})
	}
}

// TestAdoptedFlows: flows that IPVS carries on for an earlier proxy stay while their endpoint is good. After this proxy
// itself has served the frontend with IPVS, they are like any other.
func TestAdoptedFlows(t *testing.T) {
	const vip, a, b = "10.96.0.10:53", "10.0.0.1:53", "10.0.0.2:53"
	tr := NewTracker()
	tr.Adopt([]Frontend{{Addr: netip.MustParseAddr("10.96.0.10"), Port: 53, Family: state.IPv4}})
	for _, step := range []struct {
		line string
		good bool
	}{{vip + ">" + a, true}, {"ipvs " + vip + ">" + a, true}, {vip + ">" + a, false}} {
		tr.Set(name("web"), service(step.line))
		s := tr.all()
		if s.has(flow(vip+" "+a+" ipvs"), nil) == step.good {
			t.Errorf("%s: the flow of IPVS to a good endpoint: stale is %v", step.line, step.good)
		}
		if !s.has(flow(vip+" "+b+" ipvs"), nil) && step.good && !s.Empty() {
			t.Errorf("%s: the flow of IPVS to another endpoint stays", step.line)
		}
		tr.Done()
	}
}

// TestFrontendPassesOn: a frontend that moves from one Service to another in one pass is not removed.
func TestFrontendPassesOn(t *testing.T) {
	tr := NewTracker()
	tr.Set(name("old"), service("203.0.113.1:53>10.0.0.1:53 10.0.0.2:53"))
	tr.Set(name("new"), service("10.96.0.11:53>10.0.0.2:53"))
	settle(tr)
	tr.Set(name("old"), service("10.96.0.10:53>10.0.0.1:53 10.0.0.2:53"))
	tr.Set(name("new"), service("10.96.0.11:53 203.0.113.1:53>10.0.0.2:53"))
	s := tr.all()
	if !s.has(flow("203.0.113.1:53 10.0.0.1:53"), nil) || s.has(flow("203.0.113.1:53 10.0.0.2:53"), nil) {
		t.Error("the flows of the frontend are not compared with the Service that has it now")
	}
}

// TestNothingIsForgottenBeforeDone: after a failed pass or cleaning, the next cleaning includes its flows.
func TestNothingIsForgottenBeforeDone(t *testing.T) {
	tr := NewTracker()
	tr.Set(name("web"), service("10.96.0.10:53>10.0.0.1:53 10.0.0.2:53"))
	settle(tr)
	tr.Set(name("web"), service("10.96.0.10:53>10.0.0.2:53"))
	tr.all()
	tr.Set(name("web"), service("10.96.0.10:53>10.0.0.2:53 10.0.0.3:53"))
	s := tr.all()
	if !s.has(flow("10.96.0.10:53 10.0.0.1:53"), nil) {
		t.Error("the endpoint that went first is forgotten")
	}
	tr.Done()
	if s := tr.all(); !s.Empty() {
		t.Errorf("after Done: %v", s)
	}
}

// TestChangesDuringCleaning: a cleaning does not include changes that were set while it runs.
func TestChangesDuringCleaning(t *testing.T) {
	tr := NewTracker()
	tr.Set(name("web"), service("10.96.0.10:53>10.0.0.1:53 10.0.0.2:53 10.0.0.3:53"))
	settle(tr)
	tr.Set(name("web"), service("10.96.0.10:53>10.0.0.2:53 10.0.0.3:53"))
	tr.all() // a cleaning begins
	tr.Set(name("web"), service("10.96.0.10:53>10.0.0.3:53"))
	tr.Set(name("other"), service("10.96.0.11:53>"))
	tr.Done()
	s := tr.all()
	if !s.has(flow("10.96.0.10:53 10.0.0.2:53"), nil) || !s.has(flow("10.96.0.11:53 10.0.0.1:53"), nil) {
		t.Errorf("changes made during a cleaning are forgotten: %v", s)
	}
}

// TestFrontendsInBetween: a Service changes twice while a cleaning runs. The next cleaning also looks at flows of the
// state in between.
func TestFrontendsInBetween(t *testing.T) {
	const first, second = "10.96.0.10:53>10.0.0.1:53", "10.96.0.10:53 *4:30053>10.0.0.1:53 10.0.0.2:53"
	tests := []struct {
		name   string
		states []string // the first one is cleaned; the cleaning begins before the second one
		flow   string
	}{
		{"a frontend came and went", []string{first, second, first}, "192.168.0.1:30053 10.0.0.1:53"},
		{"an endpoint came and went", []string{first, second, first}, "10.96.0.10:53 10.0.0.2:53"},
		{"a frontend went and came back", []string{first, "tcp 10.96.0.10:80>", first}, "10.96.0.10:53 10.96.0.10:53"},
	}
	for _, tt := range tests {
		for _, cleaned := range []bool{true, false} {
			tr := NewTracker()
			tr.Set(name("web"), service(tt.states[0]))
			settle(tr)
			tr.Set(name("other"), service("10.96.0.11:53>"))
			tr.Set(name("web"), service(tt.states[1]))
			tr.all()
			tr.Set(name("web"), service(tt.states[2]))
			if cleaned {
				tr.Done()
			}
			s := tr.all()
			if f := flow(tt.flow); !s.has(f, addrSet(nodePortAddrs)) {
				t.Errorf("%s, cleaned between: %v: %v is not stale", tt.name, cleaned, f)
			}
			if s.has(flow("10.96.0.10:53 10.0.0.1:53"), nil) {
				t.Errorf("%s, cleaned between: %v: a good flow is stale", tt.name, cleaned)
			}
			if tr.Done(); !tr.stale().Empty() {
				t.Errorf("%s: after the last cleaning: %v", tt.name, tr.stale())
			}
		}
	}
}

func (t *Tracker) stale() *Stale {
	s := t.Stale()
	return &s
}

func TestFirstLookIsComplete(t *testing.T) {
	tr := NewTracker()
	tr.Set(name("web"), service("10.96.0.10:53 *4:30053>10.0.0.1:53", "tcp 10.96.0.10:80>"))
	tr.Set(name("empty"), service("10.96.0.11:53>"))
	tr.Set(name("gone"), nil)
	s := tr.all()
	if got := len(s.frontends(state.IPv4, false)); got != 3 || len(s.frontends(state.IPv6, false)) != 0 {
		t.Errorf("%d frontends of IPv4 and %d of IPv6 are looked at, want 3 and 0", got, len(s.frontends(state.IPv6, false)))
	}
}

// TestTrackerRemembersUDPOnly: a Tracker does not keep TCP Services in memory.
func TestTrackerRemembersUDPOnly(t *testing.T) {
	tr := NewTracker()
	tr.Set(name("tcp"), service("tcp 10.96.0.10:80>"))
	tr.Set(name("gone"), nil)
	if len(tr.services)+len(tr.frontends)+len(tr.suspects) != 0 {
		t.Errorf("remembered: %v %v %v", tr.services, tr.frontends, tr.suspects)
	}
	tr.Set(name("udp"), service("10.96.0.10:53>10.0.0.1:53"))
	tr.Set(name("udp"), service("tcp 10.96.0.10:53>"))
	settle(tr)
	if len(tr.services)+len(tr.frontends)+len(tr.suspects) != 0 {
		t.Errorf("remembered: %v %v %v", tr.services, tr.frontends, tr.suspects)
	}
}

// TestStaleRanges: flows to all ports of a range are judged by its endpoints, which are known by its first port.
func TestStaleRanges(t *testing.T) {
	tr := NewTracker()
	tr.Set(name("exact"), service("10.96.0.10:5001>10.0.0.9:5001"))
	settle(tr)
	tr.Set(name("exact"), nil)
	tr.Set(name("rtp"), service("10.96.0.10:5000-6000>10.0.0.1:5000 10.0.0.2:5000"))
	stale := func(want bool, lines ...string) {
		t.Helper()
		s := tr.all()
		for _, line := range lines {
			if got := s.has(flow(line), addrSet(nodePortAddrs)); got != want {
				t.Errorf("%s: stale %t, want %t", line, got, want)
			}
		}
	}
	stale(false, "10.96.0.10:5000 10.0.0.1:5000", "10.96.0.10:5500 10.0.0.2:5500", "10.96.0.10:6000 10.0.0.1:6000",
		"10.96.0.10:5001 10.0.0.1:5001", // the frontend of its own that the port had is gone
		"10.96.0.10:6001 10.0.0.9:6001", "10.96.0.11:5500 10.0.0.9:5500")
	stale(true, "10.96.0.10:5500 10.0.0.3:5500", "10.96.0.10:5500 10.0.0.1:5000", "10.96.0.10:5500 10.96.0.10:5500")
	settle(tr)
	tr.Set(name("rtp"), service("10.96.0.10:5000-6000>10.0.0.2:5000"))
	stale(true, "10.96.0.10:5500 10.0.0.1:5500")
	stale(false, "10.96.0.10:5500 10.0.0.2:5500")
	tr.Set(name("rtp"), nil)
	stale(true, "10.96.0.10:5500 10.0.0.2:5500")
}

// TestRangeOfPlace: of many ranges at an address, the one with the port is found: one that is served before those that are not.
func TestRangeOfPlace(t *testing.T) {
	random, vip := rand.New(rand.NewPCG(1, 2)), netip.MustParseAddr("192.0.2.1")
	for range 200 {
		at := map[Frontend]target{}
		for i := range uint16(20) {
			served := Frontend{Addr: vip, Port: 1 + 10*i, EndPort: 2 + 10*i + uint16(random.IntN(9))}
			gone := Frontend{Addr: vip, Port: uint16(1 + random.IntN(200))}
			gone.EndPort = gone.Port + 1 + uint16(random.IntN(100))
			at[gone], at[served] = target{removed: true}, target{}
		}
		x := indexOf(at)
		for port := range uint16(310) {
			want := map[bool]bool{} // whether ranges with the port are served, and are not
			for f, it := range at {
				if f.Port <= port && port <= f.EndPort {
					want[!it.removed] = true
				}
			}
			f, ok := x.within(Frontend{Addr: vip, Port: port})
			if ok != (len(want) > 0) || ok && (port < f.Port || f.EndPort < port || at[f].removed == want[true]) {
				t.Fatalf("port %d: %+v (%t), want served %t, others %t", port, f, ok, want[true], want[false])
			}
		}
	}
}

// TestRangeUnanswered: connections to a left out endpoint of a range are found at all its ports.
func TestRangeUnanswered(t *testing.T) {
	tr := NewTracker()
	p := service("tcp 10.96.0.10:5000-6000>")
	p.Choices = []plan.Choice{{At: netip.MustParseAddrPort("10.0.0.1:5000"), Protocol: state.TCP, Use: plan.Ejected}}
	tr.Set(name("web"), p)
	s := tr.LeftOut("shop")
	for line, want := range map[string]bool{
		"10.96.0.10:5500 10.0.0.1:5500": true, "10.96.0.10:5500 10.0.0.2:5500": false, "10.96.0.10:6001 10.0.0.1:6001": false,
	} {
		if got := s.isUnanswered(tcpEntry(flow(line)), nil); got != want {
			t.Errorf("%s: %t, want %t", line, got, want)
		}
	}
}

func tcpEntry(f Flow) *entry {
	f.TCP = true
	return &entry{Flow: f, state: tcpSynSent}
}

// has reports whether a flow is stale.
func (s *Stale) has(f Flow, nodePortAddrs map[netip.Addr]bool) bool {
	return s.judge(f, nodePortAddrs) != nil
}
