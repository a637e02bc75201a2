package dataplane

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// script makes random objects out of bytes.
type script struct{ rest []byte }

func (s *script) next() byte {
	if len(s.rest) == 0 {
		return 0
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return b
}

func (s *script) flag() bool { return s.next()&1 == 1 }

// addr is one of a few addresses, so that objects clash.
func (s *script) addr() netip.Addr {
	b := s.next()
	if b&1 == 1 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: b & 0xe0, 15: b >> 1 & 7})
	}
	return netip.AddrFrom4([4]byte{10, b & 0xe0, 0, b >> 1 & 7})
}

func (s *script) addrs() (list []netip.Addr) {
	for range s.next() % 4 {
		list = append(list, s.addr())
	}
	return list
}

func (s *script) protocol() state.Protocol {
	return []state.Protocol{state.TCP, state.UDP, state.SCTP}[s.next()%3]
}

func (s *script) service(name state.Name) *state.Service {
	svc := &state.Service{
		Name: name, ClusterIPs: s.addrs(), ExternalIPs: s.addrs(), LoadBalancerIPs: s.addrs(), ExternalLocal: s.flag(), InternalLocal: s.flag(),
		Balancing: state.Balancing{Scheduler: []string{"", "mh", "rr", "lc", "nonsense"}[s.next()%5]},
	}
	if s.flag() {
		svc.Affinity = time.Duration(s.next()) * 100 * time.Second
	}
	for range s.next() % 3 {
		a := s.addr()
		prefix, _ := a.Prefix(int(s.next()) % (a.BitLen() + 1))
		svc.SourceRanges = append(svc.SourceRanges, prefix)
	}
	for i := range s.next() % 4 {
		svc.Ports = append(svc.Ports, state.ServicePort{
			Name: fmt.Sprint("p", i), Protocol: s.protocol(), Port: uint16(s.next()) + 1, NodePort: uint16(s.next()) << 7,
		})
	}
	return svc
}

func (s *script) slice(svc *state.Service, number int) *state.Slice {
	sl := &state.Slice{
		Name: state.Name{Namespace: "default", Name: fmt.Sprint(svc.Name.Name, "-", number)}, Service: svc.Name, Family: state.IPv4, Weight: uint16(s.next()) * 3,
	}
	for _, p := range svc.Ports {
		sl.Ports = append(sl.Ports, state.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: uint16(s.next())})
	}
	if s.flag() {
		sl.Family = state.IPv6
	}
	for range s.next() % 24 {
		b := s.next()
		addr := netip.AddrFrom4([4]byte{10, 0, 1, b})
		if sl.Family == state.IPv6 {
			addr = netip.AddrFrom16([16]byte{0: 0xfd, 15: b})
		}
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: addr, Ready: b&1 == 0, Serving: b&2 == 0, Terminating: b&4 == 0, Node: []string{"here", "there"}[b>>3&1]})
	}
	return sl
}

// serves is a frontend as both sides name it.
type serves struct {
	family   state.Family
	addr     netip.Addr
	protocol uint8
	port     uint16
}

// FuzzPlanAndEngine plans random objects and writes them into a kernel in memory, again and again: nothing panics, the
// kernel takes every transaction, and it serves no frontend that its Service does not have.
func FuzzPlanAndEngine(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x01\x02\x03\x02\x04\x06\x01\x02\x01\x01\x00\x01\x02\x07\x08\x09\x0a\x03\x00\x50\xf0\x02\x01\x02\x03\x04\x05\x06\x07\x08\x09"))
	f.Fuzz(func(t *testing.T, input []byte) {
		s := &script{rest: input}
		m := OpenMemory(MemoryOptions{})
		m.SetEnvironment(Environment{NodePortAddresses: []netip.Addr{s.addr()}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24")}})
		env := &plan.Environment{NodeName: "here", IPv4: true, IPv6: true, NodeAddresses: s.addrs(), ExternalIPs: everywhere()}
		name := state.Name{Namespace: "default", Name: "fuzz"}
		var planner plan.Planner
		for range 3 { // one Service changes: the claims, which settle clashes of several, are not part of this
			svc := s.service(name)
			planned := planner.Plan(svc, []*state.Slice{s.slice(svc, 0), s.slice(svc, 1)}, env)
			allowed := allowedBy(svc)
			if clashes(&planned) {
				continue // claims would have stripped one of the two
			}
			m.Set(&planned)
			if done := m.Apply(); done.Err != nil {
				t.Fatalf("apply: %v\nplan: %+v", done.Err, planned)
			}
			checkServed(t, m, allowed)
		}
		m.Delete(name)
		if done := m.Apply(); done.Err != nil {
			t.Fatalf("apply the deletion: %v", done.Err)
		}
		checkServed(t, m, nil)
	})
}

// clashes reports whether two ports of a plan have the same frontend.
func clashes(p *plan.Service) bool {
	seen := map[serves]bool{}
	for _, port := range p.Ports {
		for _, fe := range port.Frontends {
			key := serves{port.Family, fe.Addr, uint8(port.Protocol), fe.Port}
			if seen[key] {
				return true
			}
			seen[key] = true
		}
	}
	return false
}

// allowedBy lists the frontends that a Service has by its own fields.
func allowedBy(svc *state.Service) map[serves]bool {
	out := map[serves]bool{}
	for _, p := range svc.Ports {
		for _, list := range [][]netip.Addr{svc.ClusterIPs, svc.ExternalIPs, svc.LoadBalancerIPs} {
			for _, a := range list {
				out[serves{state.FamilyOf(a), a, uint8(p.Protocol), p.Port}] = true
			}
		}
		for _, f := range []state.Family{state.IPv4, state.IPv6} {
			out[serves{f, netip.Addr{}, uint8(p.Protocol), p.NodePort}] = p.NodePort != 0
		}
	}
	return out
}

func checkServed(t *testing.T, m *Memory, allowed map[serves]bool) {
	t.Helper()
	got, err := m.Ruleset.List(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, fe := range got.Frontends {
		f := state.IPv4
		if fe.Family == nft.IPv6 {
			f = state.IPv6
		}
		if key := (serves{f, fe.Addr, fe.Protocol, fe.Port}); !allowed[key] {
			t.Fatalf("the kernel serves %+v, which no Service has", key)
		}
	}
	if i, err := m.Ruleset.Check(); err != nil || !i.Empty() {
		t.Fatalf("in the tables changed: %s, %v", &i, err)
	}
}

func everywhere() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
}
