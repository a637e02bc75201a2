package nft

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outsider is a client outside of all ranges of the examples.
func outsider(f Family) netip.Addr {
	if f == IPv6 {
		return addr("2001:db8:ffff::1")
	}
	return addr("203.0.113.77")
}

// wantFate is what the examples ask for a packet from an outsider, at the hook prerouting.
func (x example) wantFate(p *Port, fe *Frontend) (Fate, []EndpointStatus) {
	if fe.limited() && !forEveryone(p.Sources, p.Family) {
		return Dropped, nil
	}
	var list []Endpoint
	switch fe.Pool {
	case ClusterPool:
		list = p.Cluster
	case LocalPool, BySource:
		list = p.Local
	}
	if len(list) == 0 {
		return Passed, nil
	}
	return Translated, wantSlots(p.Method, list)
}

func (x example) target(p *Port, fe *Frontend) netip.Addr {
	if fe.Addr.IsValid() {
		return fe.Addr
	}
	for _, a := range x.globals.NodePortAddresses {
		if FamilyOf(a) == p.Family {
			return a
		}
	}
	return netip.Addr{}
}

func statuses(p *Pick) (out []EndpointStatus) {
	if p == nil {
		return nil
	}
	for _, c := range p.Candidates {
		out = append(out, EndpointStatus{c.Addr, c.Slots})
	}
	return out
}

// TestWalk sends a packet from outside to each frontend of the examples.
func TestWalk(t *testing.T) {
	for _, x := range examples() {
		m := OpenMemory(Options{})
		x.install(t, m.Engine)
		x.checkWalk(t, m.Tables())
	}
}

func (x example) checkWalk(t *testing.T, tables *Tables) {
	t.Helper()
	for i := range x.ports {
		p := &x.ports[i]
		for j := range p.Frontends {
			fe := &p.Frontends[j]
			packet := Packet{
				Src: outsider(p.Family), Dst: x.target(p, fe), Protocol: p.Protocol, DstPort: fe.Port, Interface: "eth0",
			}
			got, err := tables.Walk("prerouting", "nat", packet)
			if err != nil {
				t.Fatal(err)
			}
			fate, endpoints := x.wantFate(p, fe)
			ends := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
			if diff := cmp.Diff(endpoints, statuses(got.Pick), ends); got.Fate != fate || diff != "" {
				t.Errorf("%s: %s %s: fate %d, want %d\n%s", x.name, p.Name, packet.Dst, got.Fate, fate, diff)
			}
		}
	}
}

// TestWalkFindsProgram: whatever the globals are, the walk finds the program of the table. It looks at all groups of prefix
// lengths, also at those that have no chain, because no range is in them.
func TestWalkFindsProgram(t *testing.T) {
	for _, x := range examples() {
		m := OpenMemory(Options{})
		x.install(t, m.Engine)
		tables := m.Tables()
		for _, tb := range m.active {
			v, err := tables.view(tb.family)
			if err != nil {
				t.Fatalf("%s: %v", x.name, err)
			}
			want := tb.program()
			want.lengths = tb.family.allLengths()
			if v.program != want {
				t.Errorf("%s: found %+v, want %+v", x.name, v.program, want)
			}
		}
	}
}

func TestWalkWithoutTables(t *testing.T) {
	packet := Packet{Src: addr("192.0.2.1"), Dst: addr("192.0.2.2")}
	if _, err := OpenMemory(Options{}).Tables().Walk("output", "nat", packet); !errors.Is(err, ErrNoTables) {
		t.Errorf("without tables: %v", err)
	}
	m := OpenMemory(Options{})
	mustApply(t, m.Engine)
	stamps := m.kernel.set(IPv4, setGeneration).elements
	for key, e := range stamps {
		e.label = "program 0123456789abcdef ipvs" // of another version
		stamps[key] = e
	}
	_, err := m.Tables().Walk("output", "nat", packet)
	if !errors.Is(err, ErrUnknownProgram) || !strings.Contains(err.Error(), "program") {
		t.Errorf("with another program: %v", err)
	}
}

// TestWalkRefusals follows packets that no endpoint takes through the filter chains, and connections to postrouting.
func TestWalkRefusals(t *testing.T) {
	m := OpenMemory(Options{})
	kindsExample().install(t, m.Engine)
	tables := m.Tables()
	endpoint := netip.MustParseAddrPort("10.0.1.1:8080")
	packet := func(src, dst string, port uint16, protocol uint8) Packet {
		return Packet{Src: addr(src), Dst: addr(dst), Protocol: protocol, DstPort: port, Interface: "eth0"}
	}
	translated := func(src, original string, port uint16) Packet {
		p := packet(src, endpoint.Addr().String(), endpoint.Port(), tcp)
		p.Original = netip.AddrPortFrom(addr(original), port)
		return p
	}
	for _, tt := range []struct {
		name, hook, kind string
		packet           Packet
		want             Fate
		last             string // set of the last look-up that found something
	}{
		{"no endpoint", "forward", "filter", packet("203.0.113.7", "10.96.0.99", 80, tcp), Reset, setNoEndpoints},
		{"no endpoint, UDP to another port", "forward", "filter", packet("203.0.113.7", "10.96.0.99", 81, udp), Unreachable, setClusterIPs},
		{"unallocated", "forward", "filter", packet("203.0.113.7", "10.96.7.7", 80, tcp), Dropped, setServiceCIDRs},
		{"last range of the family", "forward", "filter", packet("203.0.113.7", "255.1.2.3", 80, tcp), Dropped, setServiceCIDRs},
		{"not a Service", "forward", "filter", packet("203.0.113.7", "198.51.100.200", 80, tcp), Passed, ""},
		{"node port without endpoints", "input", "filter", packet("203.0.113.7", "192.168.7.1", 30099, tcp), Reset, setNoEndpointsNodePorts},
		{"policy Local, none local", "forward", "filter", packet("2001:db8::7", "2001:db8::d", 80, udp), Dropped, setNoLocalEndpoints},
		{"cluster IP from outside", "postrouting", "nat", translated("203.0.113.7", "10.96.0.10", 80), Masqueraded, setClusterIPs},
		{"cluster IP from a pod", "postrouting", "nat", translated("10.0.3.3", "10.96.0.10", 80), Passed, setClusterIPs},
		{"cluster IP from the endpoint", "postrouting", "nat", translated("10.0.1.1", "10.96.0.10", 80), Masqueraded, setHairpin},
		{"external", "postrouting", "nat", translated("10.0.3.3", "192.0.2.10", 80), Masqueraded, setMasqueradeAlways},
		{"external, policy Local", "postrouting", "nat", translated("203.0.113.7", "198.51.100.10", 80), Passed, setMasqueradeNode},
		{"node port", "postrouting", "nat", translated("203.0.113.7", "192.168.7.1", 30080), Masqueraded, setMasqueradeAlwaysNodePorts},
	} {
		got, err := tables.Walk(tt.hook, tt.kind, tt.packet)
		if err != nil {
			t.Fatal(err)
		}
		last := ""
		for _, s := range got.Steps {
			for _, l := range s.Looks {
				if l.Found && l.Set != setNodePortAddresses && l.Set != setPodCIDRs {
					last = l.Set
				}
			}
		}
		if got.Fate != tt.want || last != tt.last {
			t.Errorf("%s: fate %d, want %d; found in %q, want %q\n%+v", tt.name, got.Fate, tt.want, last, tt.last, got.Steps)
		}
	}
}
