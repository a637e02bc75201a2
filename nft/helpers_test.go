package nft

import (
	"fmt"
	"net/netip"
	"regexp"
	"testing"
)

// mustApply hands the collected changes to the kernel.
func mustApply(t testing.TB, e *Engine) Result {
	t.Helper()
	r, err := e.Apply()
	if err != nil {
		t.Fatalf("apply: %s: %v", r.Outcome, err)
	}
	return r
}

func mustSet(t testing.TB, e *Engine, ports ...Port) {
	t.Helper()
	for i := range ports {
		if err := e.Set(&ports[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func mustGuard(t testing.TB, e *Engine, want bool, list ...string) {
	t.Helper()
	ready, err := e.Guard(addrs(list...))
	if err != nil || ready != want {
		t.Fatalf("guard %v: ready %t, error %v; want %t", list, ready, err, want)
	}
}

// manyPorts makes service ports of three endpoints each, with a cluster IP.
func manyPorts(f Family, first, count int) []Port {
	var out []Port
	for i := first; i < first+count; i++ {
		p := Port{Family: f, Name: fmt.Sprintf("ns/svc-%d:http", i), Protocol: tcp}
		for e := range 3 {
			p.Cluster = append(p.Cluster, Endpoint{Addr: netip.AddrPortFrom(numbered4or6(f, 10, i*3+e), 8080)})
		}
		p.Frontends = []Frontend{{Addr: numbered4or6(f, 20, i), Port: 80, ClusterIP: true, Pool: ClusterPool}}
		out = append(out, p)
	}
	return out
}

// numbered4or6 is address number n of a network.
func numbered4or6(f Family, network byte, n int) netip.Addr {
	if f == IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: network, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrFrom4([4]byte{network, byte(n >> 16), byte(n >> 8), byte(n)})
}

// scalePort is a service port with a cluster IP and a node port. All such ports have the same class.
func scalePort(f Family, i, endpointsEach int) Port {
	p := Port{Family: f, Name: fmt.Sprintf("scale/svc-%d:http", i), Protocol: tcp, Frontends: []Frontend{
		{Addr: numbered4or6(f, 20, i), Port: 80, ClusterIP: true, Pool: ClusterPool},
		{Port: uint16(1024 + i%60000), Pool: ClusterPool, Masquerade: MasqueradeAlways},
	}}
	for n := range endpointsEach {
		p.Cluster = append(p.Cluster, Endpoint{Addr: netip.AddrPortFrom(numbered4or6(f, 10, i*endpointsEach+n), 8080), Slots: 1})
	}
	return p
}

var stampText = regexp.MustCompile(`0x[0-9a-f]{8} \. 0x[0-9a-f]{8} comment`)

// unstamped is what Memory prints, without the stamps of transactions.
func (m *Memory) unstamped() string { return stampText.ReplaceAllString(m.String(), "") }

// memory is the text that Memory prints.
func (x example) memory(t *testing.T) string {
	t.Helper()
	m := OpenMemory(Options{})
	x.install(t, m.Engine)
	return m.String()
}

// wantStatus is what a listing says of a frontend.
func wantStatus(p *Port, fe *Frontend) FrontendStatus {
	s := FrontendStatus{
		Family: p.Family, Name: p.Name, Protocol: p.Protocol, Addr: fe.Addr, Port: fe.Port, Pool: fe.Pool,
		Refusal: fe.Refusal, Firewalled: fe.Firewalled && fe.Addr.IsValid(), IPVS: fe.IPVS,
	}
	if fe.Pool == ClusterPool || fe.Pool == BySource {
		s.Cluster = wantSlots(p.Method, p.Cluster)
	}
	if fe.Pool == LocalPool || fe.Pool == BySource {
		s.Local = wantSlots(p.Method, p.Local)
	}
	if len(s.Cluster)+len(s.Local) > 0 {
		s.Method, s.Affinity = p.Method, p.Affinity
	}
	return s
}

func wantSlots(method Method, endpoints []Endpoint) []EndpointStatus {
	if method == SourceHash && len(endpoints) > 0 {
		return countSlots(addresses(tableMembers(endpoints)))
	}
	return countSlots(addresses(expand(endpoints, nil)))
}
