package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestPools: which endpoints serve policy Cluster and policy Local.
func TestPools(t *testing.T) {
	tests := []struct {
		name    string
		slices  []*state.Slice
		cluster string
		local   string
	}{
		{"no slices", nil, "", ""},
		{"sorted, from several slices",
			[]*state.Slice{slice("a", "10.0.0.9", "10.0.0.2 @node-a"), slice("b", "10.0.0.10", "10.0.0.1 @node-a")},
			"10.0.0.1:8080 10.0.0.2:8080 10.0.0.9:8080 10.0.0.10:8080", "10.0.0.1:8080 10.0.0.2:8080"},
		{"not ready endpoints are left out",
			[]*state.Slice{slice("a", "10.0.0.1", "10.0.0.2 notready", "10.0.0.3 gone", "10.0.0.4 draining")},
			"10.0.0.1:8080", ""},
		{"published although not ready",
			[]*state.Slice{slice("a", "10.0.0.1 published @node-a")}, "10.0.0.1:8080", "10.0.0.1:8080"},
		{"all draining: fall back",
			[]*state.Slice{slice("a", "10.0.0.1 draining", "10.0.0.2 draining @node-a", "10.0.0.3 gone")},
			"10.0.0.1:8080 10.0.0.2:8080", "10.0.0.2:8080"},
		{"the last local one drains, others are ready",
			[]*state.Slice{slice("a", "10.0.0.1", "10.0.0.2 draining @node-a")}, "10.0.0.1:8080", "10.0.0.2:8080"},
		{"a local one is ready, another drains",
			[]*state.Slice{slice("a", "10.0.0.1 @node-a", "10.0.0.2 draining @node-a")}, "10.0.0.1:8080", "10.0.0.1:8080"},
		{"an endpoint that serves, but is neither ready nor terminating, is no fallback",
			[]*state.Slice{servingNotReady("10.0.0.1")}, "", ""},
		{"duplicates over slices count once",
			[]*state.Slice{slice("a", "10.0.0.1", "10.0.0.2"), slice("b", "10.0.0.2", "10.0.0.3")},
			"10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080", ""},
		{"a duplicate inside one slice", []*state.Slice{slice("a", "10.0.0.1", "10.0.0.1")}, "10.0.0.1:8080", ""},
		{"of two with the same address, the one that is not terminating counts",
			[]*state.Slice{slice("a", "10.0.0.1 draining"), slice("b", "10.0.0.1 @node-a"), slice("c", "10.0.0.1 draining")},
			"10.0.0.1:8080", "10.0.0.1:8080"},
		{"even when it is not ready yet",
			[]*state.Slice{slice("a", "10.0.0.1 draining"), slice("b", "10.0.0.1 notready")}, "", ""},
		{"of two that are not terminating, the ready one counts",
			[]*state.Slice{slice("a", "10.0.0.1 notready"), slice("b", "10.0.0.1")}, "10.0.0.1:8080", ""},
		{"of two that terminate, the one that serves counts",
			[]*state.Slice{slice("a", "10.0.0.1 gone"), slice("b", "10.0.0.1 draining"), slice("c", "10.0.0.1 gone")}, "10.0.0.1:8080", ""},
		{"slices with different numbers for the port",
			[]*state.Slice{slice("a", "10.0.0.1", "10.0.0.2"), numbered(9090, slice("b", "10.0.0.1", "10.0.0.3"))},
			"10.0.0.1:8080 10.0.0.1:9090 10.0.0.2:8080 10.0.0.3:9090", ""},
		{"the same, higher number first",
			[]*state.Slice{numbered(9090, slice("a", "10.0.0.1")), slice("b", "10.0.0.1"), numbered(9000, slice("c", "10.0.0.1")),
				numbered(9000, slice("d", "10.0.0.1 @node-a draining"))},
			"10.0.0.1:8080 10.0.0.1:9000 10.0.0.1:9090", ""},
		{"slices of the other family are ignored",
			[]*state.Slice{slice("a", "10.0.0.1"), slice("b", "fd00::1")}, "10.0.0.1:8080", ""},
		{"an address of the other family inside a slice is left out",
			[]*state.Slice{slice("a", "fd00::1", "10.0.0.1")}, "10.0.0.1:8080", ""},
		{"a slice without the port", []*state.Slice{renamed("https", slice("a", "10.0.0.1"))}, "", ""},
		{"a slice with the port in another protocol", []*state.Slice{udp(slice("a", "10.0.0.1"))}, "", ""},
		{"a slice without ports", []*state.Slice{portless(slice("a", "10.0.0.1"))}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := service(func(s *state.Service) { s.ExternalLocal, s.Ports[0].NodePort = true, 30080 })
			p := portOf(t, planned(svc, tt.slices, environment()), state.IPv4, "shop/web:http")
			equal(t, "Cluster", show(p.Cluster), tt.cluster)
			equal(t, "Local", show(p.Local), tt.local)
		})
	}
}

func servingNotReady(addr string) *state.Slice {
	sl := slice("a", addr)
	sl.Endpoints[0].Ready = false
	return sl
}

func numbered(port uint16, sl *state.Slice) *state.Slice { sl.Ports[0].Port = port; return sl }
func renamed(name string, sl *state.Slice) *state.Slice  { sl.Ports[0].Name = name; return sl }
func udp(sl *state.Slice) *state.Slice                   { sl.Ports[0].Protocol = state.UDP; return sl }
func portless(sl *state.Slice) *state.Slice              { sl.Ports = nil; return sl }
func weighted(w uint16, sl *state.Slice) *state.Slice    { sl.Weight = w; return sl }

// TestNodeWithoutName: an endpoint without a node is not local to a node whose name is unknown.
func TestNodeWithoutName(t *testing.T) {
	env := environment()
	env.NodeName = ""
	sl := slice("a", "10.0.0.1 @")
	p := portOf(t, planned(service(nil), []*state.Slice{sl}, env), state.IPv4, "shop/web:http")
	if p.Cluster[0].Local {
		t.Error("the endpoint counts as local")
	}
}

func TestWeights(t *testing.T) {
	svc := service(nil)
	list := []*state.Slice{weighted(3, slice("a", "10.0.0.1 @node-a")), weighted(0, slice("b", "10.0.0.2")), slice("c", "10.0.0.3")}
	p := portOf(t, planned(svc, list, environment()), state.IPv4, "shop/web:http")
	equal(t, "Cluster", p.Cluster, []serviceport.Endpoint{
		{Addr: netip.MustParseAddrPort("10.0.0.1:8080"), Weight: 3, Local: true},
		{Addr: netip.MustParseAddrPort("10.0.0.3:8080"), Weight: 1},
	})

	p = portOf(t, planned(svc, []*state.Slice{weighted(0, slice("a", "10.0.0.1", "10.0.0.2 draining"))}, environment()),
		state.IPv4, "shop/web:http")
	equal(t, "Cluster with weight 0 only", show(p.Cluster), "")
	equal(t, "Refusal with weight 0 only", frontendOf(t, p, ClusterIP).Refusal, serviceport.Reject)
}

// TestServing: which endpoints keep their UDP flows. Policy, topology and weight end no flow.
func TestServing(t *testing.T) {
	svc := service(func(s *state.Service) { s.Ports[0].Protocol, s.InternalLocal = state.UDP, true })
	list := []*state.Slice{
		udp(slice("a", "10.0.0.2 draining", "10.0.0.1", "10.0.0.3 gone", "10.0.0.4 notready", "10.0.0.5 published")),
		weighted(0, udp(slice("b", "10.0.0.6"))),
	}
	p := portOf(t, planned(svc, list, environment()), state.IPv4, "shop/web:http")
	equal(t, "Serving", showAddrs(p.Serving), "10.0.0.1:8080 10.0.0.2:8080 10.0.0.5:8080 10.0.0.6:8080")

	p = portOf(t, planned(service(nil), []*state.Slice{slice("a", "10.0.0.1")}, environment()), state.IPv4, "shop/web:http")
	if p.Serving != nil {
		t.Errorf("a TCP port lists endpoints of UDP flows: %v", p.Serving)
	}
}

// TestServingPastTheLimit: endpoints of pools keep their UDP flows also when the Service is past its limit. Others keep
// theirs while there is room.
func TestServingPastTheLimit(t *testing.T) {
	svc := service(func(s *state.Service) { s.Ports[0].Protocol, s.ClusterIPs = state.UDP, s.ClusterIPs[:1] })
	var lines []string
	for i := range 6 {
		lines = append(lines, fmt.Sprintf("10.0.0.%d", 2*i+1), fmt.Sprintf("10.0.0.%d draining", 2*i+2))
	}
	for _, tt := range []struct{ limit, pool, serving int }{{1, 1, 1}, {5, 3, 5}, {8, 4, 8}, {12, 6, 12}} {
		planner := Planner{Limits: Limits{Elements: Limit{N: tt.limit, Flag: "--max"}}}
		got := planner.Plan(svc, []*state.Slice{udp(slice("a", lines...))}, environment())
		p := portOf(t, got, state.IPv4, "shop/web:http")
		equal(t, fmt.Sprintf("Cluster with %d elements", tt.limit), len(p.Cluster), tt.pool)
		equal(t, fmt.Sprintf("Serving with %d elements", tt.limit), len(p.Serving), tt.serving)
		for _, e := range p.Cluster {
			if _, found := slices.BinarySearchFunc(p.Serving, e.Addr, netip.AddrPort.Compare); !found {
				t.Errorf("with %d elements, flows to %s of the pool are deleted", tt.limit, e.Addr)
			}
		}
	}
}

func TestPortsAndNames(t *testing.T) {
	svc := service(func(s *state.Service) {
		s.Ports = []state.ServicePort{
			{Name: "dns", Protocol: state.UDP, Port: 53}, {Name: "dns-tcp", Protocol: state.TCP, Port: 53},
		}
	})
	both := &state.Slice{Family: state.IPv6, Weight: 1, Ports: []state.SlicePort{
		{Name: "dns", Protocol: state.UDP, Port: 5353}, {Name: "dns-tcp", Protocol: state.TCP, Port: 5454},
	}, Endpoints: []state.Endpoint{endpoint("fd00::1")}}
	got := planned(svc, []*state.Slice{both}, environment())
	var lines []string
	for _, p := range got.Ports {
		lines = append(lines, p.Family.Version()+" "+p.Name+" "+p.Protocol.String()+" "+show(p.Cluster))
	}
	equal(t, "ports", lines, []string{
		"IPv4 shop/web:dns udp ", "IPv4 shop/web:dns-tcp tcp ",
		"IPv6 shop/web:dns udp [fd00::1]:5353", "IPv6 shop/web:dns-tcp tcp [fd00::1]:5454",
	})

	twice := service(func(s *state.Service) {
		s.Ports = []state.ServicePort{{Protocol: state.UDP, Port: 53}, {Protocol: state.TCP, Port: 53}}
	})
	same := &state.Slice{Family: state.IPv4, Weight: 1, Ports: []state.SlicePort{
		{Protocol: state.UDP, Port: 5353}, {Protocol: state.TCP, Port: 5454},
	}, Endpoints: []state.Endpoint{endpoint("10.0.0.1")}}
	lines = nil
	for _, p := range planned(twice, []*state.Slice{same}, environment()).Ports {
		lines = append(lines, p.Family.Version()+" "+p.Name+" "+p.Protocol.String()+" "+show(p.Cluster))
	}
	equal(t, "ports without names", lines, []string{
		"IPv4 shop/web:53 udp 10.0.0.1:5353", "IPv4 shop/web:53/tcp tcp 10.0.0.1:5454",
		"IPv6 shop/web:53 udp ", "IPv6 shop/web:53/tcp tcp ",
	})

	unnamed := service(func(s *state.Service) { s.Ports[0].Name = "" })
	got = planned(unnamed, []*state.Slice{renamed("", slice("a", "10.0.0.1"))}, environment())
	equal(t, "unnamed port", got.Ports[0].Name, "shop/web:80")
	equal(t, "its endpoints", show(got.Ports[0].Cluster), "10.0.0.1:8080")
}

func TestHealthCheck(t *testing.T) {
	svc := service(func(s *state.Service) {
		s.HealthCheckNodePort, s.ExternalLocal = 32000, true
		s.Ports = append(s.Ports, state.ServicePort{Name: "https", Protocol: state.TCP, Port: 443})
	})
	twoPorts := slice("b", "10.0.0.1 @node-a", "10.0.0.2", "10.0.0.3 @node-a draining", "10.0.0.4 @node-a notready", "10.0.0.5 @node-a")
	twoPorts.Ports = append(twoPorts.Ports, state.SlicePort{Name: "https", Protocol: state.TCP, Port: 8443})
	list := []*state.Slice{
		slice("a", "10.0.0.1 @node-a draining", "10.0.0.1 @node-a"), twoPorts,
		weighted(0, slice("c", "10.0.0.6 @node-a")), portless(slice("d", "10.0.0.7 @node-a")),
		slice("e", "fd00::1 @node-a"),
	}
	equal(t, "health check", *planned(svc, list, environment()).HealthCheck,
		HealthCheck{NodePort: 32000, LocalIPv4: 2, LocalIPv6: 1, ElsewhereIPv4: true})
	both := svc.ClusterIPs
	for family, want := range map[state.Family]HealthCheck{
		state.IPv4: {NodePort: 32000, LocalIPv4: 2, LocalIPv6: 2, ElsewhereIPv4: true, ElsewhereIPv6: true},
		state.IPv6: {NodePort: 32000, LocalIPv4: 1, LocalIPv6: 1},
	} {
		svc.ClusterIPs = slices.DeleteFunc(slices.Clone(both), func(a netip.Addr) bool { return state.FamilyOf(a) != family })
		equal(t, "a Service of "+family.Version(), *planned(svc, list, environment()).HealthCheck, want)
	}
	if hc := planned(service(nil), list, environment()).HealthCheck; hc != nil {
		t.Errorf("a Service without healthCheckNodePort got %+v", hc)
	}
}

// TestRadixSort compares the sort of large Services with the standard library's.
func TestRadixSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{radixFrom, radixFrom + 1, 3000} {
		for _, bits := range []int{0, 3, 9, 64, 70, 128} {
			var e members
			for i := range n {
				m := member{slice: uint32(i)}
				if bits > 64 {
					m.hi, m.lo = rng.Uint64()>>(128-bits), rng.Uint64()
				} else if bits > 0 {
					m.lo = rng.Uint64() >> (64 - bits)
				}
				e.list = append(e.list, m)
			}
			want := slices.Clone(e.list)
			slices.SortStableFunc(want, func(a, b member) int { return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo)) })
			e.sort()
			if !slices.Equal(e.list, want) {
				t.Errorf("n=%d bits=%d: not sorted, or not stable", n, bits)
			}
		}
	}
}

// TestLargeService plans 3,000 endpoints from many slices and compares the pool with a list that the test sorts itself.
func TestLargeService(t *testing.T) {
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		list := spread(family, 3000)
		var want []netip.Addr
		for _, sl := range list {
			for _, e := range sl.Endpoints {
				want = append(want, e.Addr)
			}
		}
		slices.SortFunc(want, netip.Addr.Compare)
		var got []netip.Addr
		for _, e := range portOf(t, planned(service(nil), list, environment()), family, "shop/web:http").Cluster {
			got = append(got, e.Addr.Addr())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: %d endpoints, want %d in order", family, len(got), len(want))
		}
	}
}

// TestPortsOfOneAddress: however the ports of an address arrive, each comes once and in order, and of two equal ones the one
// that serves more counts.
func TestPortsOfOneAddress(t *testing.T) {
	list := []*state.Slice{slice("a", "10.0.0.1", "10.0.0.2"), slice("b", "10.0.0.1"), slice("c", "10.0.0.1 draining"), slice("d", "10.0.0.1 draining")}
	for i, port := range []uint16{8082, 8080, 8082, 8081} {
		list[i].Ports = []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: port}}
	}
	for range 2 {
		got := planned(service(nil), list, environment())
		equal(t, "endpoints", show(portOf(t, got, state.IPv4, "shop/web:http").Cluster), "10.0.0.1:8080 10.0.0.1:8082 10.0.0.2:8082")
		slices.Reverse(list)
	}
}

// TestEvidence: the podCIDRs of the Node are true if pods of this node, and no others, are in them.
func TestEvidence(t *testing.T) {
	yes, no := Evidence{For: true}, Evidence{Against: true}
	env := environment()
	env.PodCIDRs = prefixes("10.0.1.0/24 fd00:a::/64")
	for endpoints, want := range map[string]Evidence{
		"":                     {},
		"10.0.1.1 @" + here:    yes,
		"10.0.2.1 @" + here:    no,
		"10.0.2.1 @node-b":     {},
		"10.0.1.1 @node-b":     no,
		"10.0.1.1 @":           {}, // of nobody knows which node
		"192.168.0.1 @" + here: {}, // the address of the node
		"10.0.1.1 @" + here + ",10.0.2.1 @node-b":  yes,
		"10.0.1.1 @" + here + ",10.0.2.1 @" + here: {For: true, Against: true},
		"fd00:a::1 @" + here:                       yes,
		"fd00:b::1 @" + here + " gone":             no,
	} {
		var list []string
		if endpoints != "" {
			list = strings.Split(endpoints, ",")
		}
		if got := planned(service(func(s *state.Service) { s.ClusterIPs = addrs("10.96.0.1 fd00:96::1") }), []*state.Slice{slice("a", list...)}, env).PodCIDRs; got != want {
			t.Errorf("%s: %+v, want %+v", endpoints, got, want)
		}
	}
}

// TestElsewhere: another node can take over what comes to a health check node port if it has an endpoint that is ready and good on
// some port. One of no node proves nothing.
func TestElsewhere(t *testing.T) {
	svc := service(func(s *state.Service) { s.HealthCheckNodePort, s.ExternalLocal = 32000, true })
	nowhere := slice("b", "10.0.0.2")
	nowhere.Endpoints[0].Node = ""
	for what, tt := range map[string]struct {
		list   []*state.Slice
		failed []string
		want   bool
	}{
		"only here":                        {[]*state.Slice{slice("a", "10.0.0.1 @node-a")}, nil, false},
		"here and there":                   {[]*state.Slice{slice("a", "10.0.0.1 @node-a", "10.0.0.2")}, nil, true},
		"here, and there one drains":       {[]*state.Slice{slice("a", "10.0.0.1 @node-a", "10.0.0.2 draining")}, nil, false},
		"here, and there one is not ready": {[]*state.Slice{slice("a", "10.0.0.1 @node-a", "10.0.0.2 notready")}, nil, false},
		"here, and there one fails":        {[]*state.Slice{slice("a", "10.0.0.1 @node-a", "10.0.0.2")}, []string{"10.0.0.2"}, false},
		"here, and there one of two fails": {[]*state.Slice{slice("a", "10.0.0.1 @node-a", "10.0.0.2", "10.0.0.3")}, []string{"10.0.0.2"}, true},
		"here, and there of weight 0":      {[]*state.Slice{slice("a", "10.0.0.1 @node-a"), weighted(0, slice("b", "10.0.0.2"))}, nil, false},
		"here, and on no node":             {[]*state.Slice{slice("a", "10.0.0.1 @node-a"), nowhere}, nil, false},
	} {
		p := Planner{Health: fails(true, tt.failed...)}
		equal(t, what, p.Plan(svc, tt.list, environment()).HealthCheck.ElsewhereIPv4, tt.want)
	}
}
