package nft

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// outsider is a client outside of all ranges of the examples.
func outsider(f program.Family) netip.Addr {
	if f == program.IPv6 {
		return addr("2001:db8:ffff::1")
	}
	return addr("203.0.113.77")
}

// wantFate is what the examples ask for a packet from an outsider, at the hook prerouting.
func (x example) wantFate(p *contents.Port, fe *contents.Frontend) (inspect.Fate, []inspect.EndpointStatus) {
	if fe.Firewalled && fe.Addr.IsValid() && !slices.ContainsFunc(p.Sources, func(r netip.Prefix) bool { return r.Bits() == 0 }) {
		return inspect.Dropped, nil
	}
	var list []contents.Endpoint
	switch fe.Pool {
	case program.ClusterPool:
		list = p.Cluster
	case program.LocalPool, program.BySource:
		list = p.Local
	}
	if len(list) == 0 {
		return inspect.Passed, nil
	}
	return inspect.Translated, withPort(wantSlots(p.Method, list), fe.Port)
}

func (x example) target(p *contents.Port, fe *contents.Frontend) netip.Addr {
	if fe.Addr.IsValid() {
		return fe.Addr
	}
	for _, a := range x.globals.NodePortAddresses {
		if program.FamilyOf(a) == p.Family {
			return a
		}
	}
	return netip.Addr{}
}

func statuses(p *inspect.Pick) (out []inspect.EndpointStatus) {
	if p == nil {
		return nil
	}
	for _, c := range p.Candidates {
		out = append(out, inspect.EndpointStatus{Addr: c.Addr, Slots: c.Slots})
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

func (x example) checkWalk(t *testing.T, tables *inspect.Tables) {
	t.Helper()
	for i := range x.ports {
		p := &x.ports[i]
		for j := range p.Frontends {
			fe := &p.Frontends[j]
			packet := inspect.Packet{
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
			for _, hook := range []string{"input", "forward", "output"} { // an untranslated packet passes all the rules there
				if _, err := tables.Walk(hook, "filter", packet); err != nil {
					t.Errorf("%s: %s %s at %s: %v", x.name, p.Name, packet.Dst, hook, err)
				}
			}
		}
	}
}

// TestWalkFindsProgram: whatever the globals are, the walk finds the program of the table.
func TestWalkFindsProgram(t *testing.T) {
	for _, x := range examples() {
		m := OpenMemory(Options{})
		x.install(t, m.Engine)
		for _, tb := range m.tables {
			found, err := kernel.Identify(m.kernel, tb.Family)
			if err != nil {
				t.Fatalf("%s: %v", x.name, err)
			}
			want := tb.Want.Program()
			want.Lengths = 0
			if found != want {
				t.Errorf("%s: found %+v, want %+v", x.name, found, want)
			}
		}
	}
}

func TestWalkWithoutTables(t *testing.T) {
	packet := inspect.Packet{Src: addr("192.0.2.1"), Dst: addr("192.0.2.2")}
	if _, err := OpenMemory(Options{}).Tables().Walk("output", "nat", packet); !errors.Is(err, kernel.ErrNoTables) {
		t.Errorf("without tables: %v", err)
	}
	m := OpenMemory(Options{})
	mustApply(t, m.Engine)
	tx := &program.Transaction{}
	err := m.kernel.DumpElements(program.IPv4, program.Generation, func(e kernel.Found) {
		tx.For(program.IPv4).Remove(program.Generation, tx.KeyOnly(e.Key, false))
		tx.For(program.IPv4).Insert(program.Generation, tx.Element("program 0123456789abcdef ipvs", // of another version
			func(b *program.Builder) { b.Arena = append(b.Arena, e.Key...) }, nil))
	})
	var b kernel.Batch
	if err := errors.Join(err, b.Encode(tx)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.kernel.Send(&b); err != nil {
		t.Fatal(err)
	}
	_, err = m.Tables().Walk("output", "nat", packet)
	if !errors.Is(err, kernel.ErrUnknownProgram) || !strings.Contains(err.Error(), "program") {
		t.Errorf("with another program: %v", err)
	}
}

// TestWalkRefusals follows packets that no endpoint takes through the filter chains, and connections to postrouting.
func TestWalkRefusals(t *testing.T) {
	m := OpenMemory(Options{})
	kindsExample().install(t, m.Engine)
	tables := m.Tables()
	endpoint := netip.MustParseAddrPort("10.0.1.1:8080")
	packet := func(src, dst string, port uint16, protocol uint8) inspect.Packet {
		return inspect.Packet{Src: addr(src), Dst: addr(dst), Protocol: protocol, DstPort: port, Interface: "eth0"}
	}
	translated := func(src, original string, port uint16) inspect.Packet {
		p := packet(src, endpoint.Addr().String(), endpoint.Port(), tcp)
		p.Original = netip.AddrPortFrom(addr(original), port)
		return p
	}
	for _, tt := range []struct {
		name, hook, kind string
		packet           inspect.Packet
		want             inspect.Fate
		last             string // set of the last look-up that found something
	}{
		{"no endpoint", "forward", "filter", packet("203.0.113.7", "10.96.0.99", 80, tcp), inspect.Reset, program.NoEndpoints.Name()},
		{"no endpoint, UDP to another port", "forward", "filter", packet("203.0.113.7", "10.96.0.99", 81, udp), inspect.Unreachable, program.ClusterIPs.Name()},
		{"unallocated", "forward", "filter", packet("203.0.113.7", "10.96.7.7", 80, tcp), inspect.Dropped, program.ServiceCIDRs.Name()},
		{"last range of the family", "forward", "filter", packet("203.0.113.7", "255.1.2.3", 80, tcp), inspect.Dropped, program.ServiceCIDRs.Name()},
		{"not a Service", "forward", "filter", packet("203.0.113.7", "198.51.100.200", 80, tcp), inspect.Passed, ""},
		{"node port without endpoints", "input", "filter", packet("203.0.113.7", "192.168.7.1", 30099, tcp), inspect.Reset, program.NoEndpointsNodePorts.Name()},
		{"policy Local, none local", "forward", "filter", packet("2001:db8::7", "2001:db8::d", 80, udp), inspect.Dropped, program.NoLocalEndpoints.Name()},
		{"cluster IP from outside", "postrouting", "nat", translated("203.0.113.7", "10.96.0.10", 80), inspect.Masqueraded, program.ClusterIPs.Name()},
		{"cluster IP from a pod", "postrouting", "nat", translated("10.0.3.3", "10.96.0.10", 80), inspect.Passed, program.ClusterIPs.Name()},
		{"cluster IP from the endpoint", "postrouting", "nat", translated("10.0.1.1", "10.96.0.10", 80), inspect.Masqueraded, program.Hairpin.Name()},
		{"external", "postrouting", "nat", translated("10.0.3.3", "192.0.2.10", 80), inspect.Masqueraded, program.MasqueradeAlways.Name()},
		{"external, policy Local", "postrouting", "nat", translated("203.0.113.7", "198.51.100.10", 80), inspect.Passed, program.MasqueradeNode.Name()},
		{"range without endpoints", "forward", "filter", packet("2001:db8::7", "fd00:96::61", 5500, tcp), inspect.Reset, program.RangeNoEndpoints.Name()},
		{"beside a range", "forward", "filter", packet("2001:db8::7", "fd00:96::61", 6001, tcp), inspect.Reset, program.ClusterIPs.Name()},
		{"range, none local", "forward", "filter", packet("2001:db8::7", "2001:db8::60", 65535, tcp), inspect.Dropped, program.RangeNoLocalEndpoints.Name()},
		{"range", "postrouting", "nat", translated("10.0.3.3", "192.0.2.60", 10001), inspect.Passed, ""},
		{"node port", "postrouting", "nat", translated("203.0.113.7", "192.168.7.1", 30080), inspect.Masqueraded, program.MasqueradeAlwaysNodePorts.Name()},
	} {
		got, err := tables.Walk(tt.hook, tt.kind, tt.packet)
		if err != nil {
			t.Fatal(err)
		}
		last := ""
		for _, s := range got.Steps {
			for _, l := range s.Looks {
				if l.Found && l.Set != program.NodePortAddresses && l.Set != program.PodCIDRs {
					last = l.Set.Name()
				}
			}
		}
		if got.Fate != tt.want || last != tt.last {
			t.Errorf("%s: fate %d, want %d; found in %q, want %q\n%+v", tt.name, got.Fate, tt.want, last, tt.last, got.Steps)
		}
	}
}
