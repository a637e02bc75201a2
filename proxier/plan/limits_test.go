package plan

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// twoPorts has cluster IP, external IPs, load balancer and node port at each of two ports: ten frontends.
func twoPorts(s *state.Service) {
	s.ClusterIPs, s.LoadBalancerIPs = s.ClusterIPs[:1], addrs("198.51.100.1")
	s.ExternalIPs = addrs("203.0.113.1 203.0.113.2")
	s.Ports = []state.ServicePort{
		{Name: "http", Protocol: state.TCP, Port: 80, NodePort: 30080}, {Name: "https", Protocol: state.TCP, Port: 443, NodePort: 30443},
	}
}

func clusterIPOnly(s *state.Service) { twoPorts(s); s.ExternalIPs, s.LoadBalancerIPs = nil, nil }

// outline prints the frontends of each port by kind, its endpoints, and "plain" if it has no slots for weights.
func outline(s Service) string {
	var ports []string
	for _, p := range s.Ports {
		var kinds []string
		for _, fe := range p.Frontends {
			kinds = append(kinds, [...]string{ClusterIP: "c", ExternalIP: "e", LoadBalancer: "l", NodePort: "n"}[fe.Kind])
		}
		text := fmt.Sprintf("%s %d", strings.Join(kinds, ""), len(p.Cluster))
		if p.Plain {
			text += " plain"
		}
		ports = append(ports, text)
	}
	return strings.Join(ports, ", ")
}

func reasons(list []state.Problem) string {
	var lines []string
	for _, p := range list {
		lines = append(lines, p.Kind+" "+p.Object.String()+" "+p.Field+": "+p.Reason)
	}
	return strings.Join(lines, "\n")
}

// TestFrontendLimit: frontends get room in the order of trust, and a Problem counts those that have none.
func TestFrontendLimit(t *testing.T) {
	for _, tt := range []struct {
		limit int
		edit  func(*state.Service)
		want  string
		cut   int
	}{
		{10, twoPorts, "ceeln 2, ceeln 2", 0},
		{9, twoPorts, "ceeln 2, celn 2", 1},
		{7, twoPorts, "celn 2, cln 2", 3},
		{5, twoPorts, "cln 2, cn 2", 5},
		{3, twoPorts, "cn 2, c 2", 7},
		{1, twoPorts, "c 2", 9},
		{9, everything, "celln 2, celn 0", 0},
		{8, everything, "celln 2, cln 0", 1},
		{4, everything, "cn 2, cn 0", 5},
		{2, func(s *state.Service) { s.ClusterIPs, s.LoadBalancerIPs = s.ClusterIPs[:1], addrs("198.51.100.1") }, "cl 2", 0},
		{2, func(s *state.Service) {
			twoPorts(s)
			s.ExternalIPs, s.LoadBalancerIPs, s.Ports[0].EndPort = nil, nil, 90
		}, "c 0, c 2", 1},
	} {
		p := Planner{Limits: Limits{Frontends: Limit{N: tt.limit, Flag: "--most"}}}
		list := slice("a", "10.0.0.1", "10.0.0.2")
		list.Ports = append(list.Ports, state.SlicePort{Name: "https", Protocol: state.TCP, Port: 8443})
		svc := service(tt.edit)
		got := p.Plan(svc, []*state.Slice{list}, environment())
		what := fmt.Sprintf("limit %d", tt.limit)
		equal(t, what, outline(got), tt.want)
		equal(t, what+": cut", got.Cut, tt.cut > 0)
		used := 0
		for _, port := range got.Ports {
			used += len(port.Frontends)
		}
		equal(t, what+": used", got.Used.Frontends, used)
		problem := ""
		if tt.cut > 0 {
			problem = fmt.Sprintf("Service shop/web spec.ports: %d of %d frontends (addresses x ports) have no room (--most) and are not served: "+
				"external IPs first, then load balancer IPs, node ports and cluster IPs", tt.cut, tt.cut+used)
		}
		if is := reasons(got.Problems); svc.Ports[0].EndPort == 0 && is != problem {
			t.Errorf("%s: problems\n got %s\nwant %s", what, is, problem)
		}
	}
}

// TestElementLimit: each port gets an endpoint, whatever the limit. A Problem counts what has no room.
func TestElementLimit(t *testing.T) {
	ranges := func(s *state.Service) {
		s.ClusterIPs, s.LoadBalancerIPs, s.SourceRanges = s.ClusterIPs[:1], addrs("198.51.100.1"), prefixes("10.8.0.0/16 10.9.0.0/16")
	}
	rangesTwice := func(s *state.Service) {
		ranges(s)
		s.Ports = append(s.Ports, state.ServicePort{Name: "https", Protocol: state.TCP, Port: 443})
	}
	four := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}
	for _, tt := range []struct {
		limit     int
		edit      func(*state.Service)
		endpoints []string
		want      string
		used, cut int
	}{
		{8, clusterIPOnly, four, "cn 4, cn 4", 8, 0},
		{7, clusterIPOnly, four, "cn 4, cn 3", 7, 1},
		{5, clusterIPOnly, four, "cn 4, cn 1", 5, 3},
		{4, clusterIPOnly, four, "cn 3, cn 1", 4, 4},
		{3, clusterIPOnly, four, "cn 2, cn 1", 3, 4}, // one is left out before the ports are planned
		{1, clusterIPOnly, four, "cn 1, cn 1", 2, 3},
		{0, clusterIPOnly, four, "cn 1, cn 1", 2, 3},
		{-3, clusterIPOnly, four, "cn 1, cn 1", 2, 3}, // others have the room of the namespace
		{0, func(s *state.Service) {}, four, "c 1, c 0", 1, 3},
		{4, ranges, four, "cl 2", 4, 2},
		{2, ranges, four[:1], "cl 1", 3, 0},
		{5, rangesTwice, four[:1], "cl 1, cl 1", 6, 0},
		{4, rangesTwice, four[:1], "cl 1, c 1", 4, 2},
		{2, rangesTwice, four[:1], "c 1, c 1", 2, 4}, // the next port keeps an element
		{1, ranges, four[:1], "c 1", 1, 2},           // all source ranges of a frontend, or none
	} {
		p := Planner{Limits: Limits{Elements: Limit{N: tt.limit, Flag: "--most"}}}
		list := slice("a", tt.endpoints...)
		list.Ports = append(list.Ports, state.SlicePort{Name: "https", Protocol: state.TCP, Port: 8443})
		got := p.Plan(service(tt.edit), []*state.Slice{list}, environment())
		what := fmt.Sprintf("limit %d", tt.limit)
		equal(t, what, outline(got), tt.want)
		equal(t, what+": used", got.Used.Elements, tt.used)
		equal(t, what+": cut", got.Cut, tt.cut > 0)
		problem := ""
		if tt.cut > 0 {
			problem = fmt.Sprintf("Service shop/web spec.ports: %d of %d endpoints and source ranges have no room (--most) and are not used",
				tt.cut, tt.cut+tt.used)
		}
		equal(t, what+": problems", reasons(got.Problems), problem)
	}
}

// TestSlotLimit: a port whose slots have no room works without weights and hash tables. Ports share hash tables.
func TestSlotLimit(t *testing.T) {
	none := Limit{}
	for _, tt := range []struct {
		name            string
		elements, slots Limit
		weights         int
		tables          map[string]int
		want            string
		narrow          bool
	}{
		{"no limit", none, none, 3, map[string]int{"t": 16}, "cn 2, cn 2", false},
		{"room for both", none, Limit{26, "--slots"}, 3, map[string]int{"t": 16}, "cn 2, cn 2", false},
		{"room for one", none, Limit{25, "--slots"}, 3, map[string]int{"t": 16}, "cn 2, cn 2 plain", true},
		{"room for one, which keeps an element for the other", none, Limit{22, "--slots"}, 3, map[string]int{"t": 16}, "cn 2, cn 2 plain", true},
		{"room for one, but not for an element of the other", none, Limit{21, "--slots"}, 3, map[string]int{"t": 16}, "cn 2 plain, cn 2 plain", true},
		{"room for none", none, Limit{6, "--slots"}, 3, map[string]int{"t": 16}, "cn 2 plain, cn 2 plain", true},
		{"nothing is needed", none, Limit{1, "--slots"}, 0, nil, "cn 2, cn 2", false},
		{"weights are elements: room for both", Limit{10, "--elements"}, none, 3, nil, "cn 2, cn 2", false},
		{"weights are elements: room for one", Limit{9, "--elements"}, none, 3, nil, "cn 2, cn 2 plain", false},
		{"weights are elements: the other port keeps one", Limit{5, "--elements"}, none, 3, nil, "cn 2 plain, cn 2 plain", false},
		{"hash tables are no elements", Limit{4, "--elements"}, none, 0, map[string]int{"t": 16}, "cn 2, cn 2", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Planner{Limits: Limits{Elements: tt.elements, Slots: tt.slots}}
			p.Slots = func(*Port) (int, map[string]int) { return tt.weights, tt.tables }
			list := slice("a", "10.0.0.1", "10.0.0.2")
			list.Ports = append(list.Ports, state.SlicePort{Name: "https", Protocol: state.TCP, Port: 8443})
			got := p.Plan(service(clusterIPOnly), []*state.Slice{list}, environment())
			equal(t, "ports", outline(got), tt.want)
			equal(t, "narrow", got.Narrow, tt.narrow)
			problem, plain := "", strings.Count(tt.want, "plain")
			if plain > 0 {
				flag, first := tt.elements.Flag+tt.slots.Flag, [...]string{1: "https", 2: "http"}[plain]
				problem = fmt.Sprintf("Service shop/web metadata.annotations: slots for weights or hashing have no room (%s) at %d service ports, "+
					"the first is shop/web:%s: nft picks their endpoints at random, all alike", flag, plain, first)
			}
			equal(t, "problems", reasons(got.Problems), problem)
		})
	}
}

// TestManySlices: slices beyond a bound are not used, and a Problem says so.
func TestManySlices(t *testing.T) {
	list := make([]*state.Slice, maxSlices)
	for i := range list {
		list[i] = slice("a", "10.0.0.1")
	}
	equal(t, "at the bound", planned(service(nil), list, environment()).Problems, []state.Problem(nil))
	got := planned(service(nil), append(list, slice("b", "10.0.0.2")), environment())
	equal(t, "endpoints", show(portOf(t, got, state.IPv4, "shop/web:http").Cluster), "10.0.0.1:8080")
	equal(t, "problems", reasons(got.Problems),
		"Service shop/web metadata.name: the Service has 4097 EndpointSlices: the first 4096 by name are used")
}

// manyPorts are ports that all slices serve.
func manyPorts(n int, list []*state.Slice) (ports []state.ServicePort) {
	var of []state.SlicePort
	for i := range n {
		name := fmt.Sprint("p", i)
		ports = append(ports, state.ServicePort{Name: name, Protocol: state.TCP, Port: uint16(1 + i)})
		of = append(of, state.SlicePort{Name: name, Protocol: state.TCP, Port: uint16(1 + i)})
	}
	for _, sl := range list {
		sl.Ports = of
	}
	return ports
}

// TestManyPortsWithManyEndpoints: a Service with many of both has a limit of what is looked at and watched.
func TestManyPortsWithManyEndpoints(t *testing.T) {
	const most, ports = 100_000, 2000
	list := spread(state.IPv4, 500)
	list[0].Backup = true
	svc := service(func(s *state.Service) { clusterIPOnly(s); s.Ports = manyPorts(ports, list) })
	p := Planner{Limits: Limits{Frontends: Limit{N: 4096, Flag: "--most"}, Elements: Limit{N: most, Flag: "--most"}}}
	got := p.Plan(svc, list, environment())
	if n := p.looked(); n > 2*visits*most {
		t.Errorf("%d endpoints are looked at", n)
	}
	if len(got.Choices) != maxChoices || got.Used.Elements > most+ports || !got.Cut || len(got.Ports) != ports {
		t.Errorf("%d choices, %d elements, %d ports, cut %t", len(got.Choices), got.Used.Elements, len(got.Ports), got.Cut)
	}
	if text := reasons(got.Problems); !strings.Contains(text, "only the first 131072 endpoints of all ports are checked and watched") {
		t.Errorf("problems:\n%s", text)
	}
	p.Limits.Frontends.N = 10
	if got := p.Plan(svc, list, environment()); len(got.Ports) != 10 || got.Used.Frontends != 10 {
		t.Errorf("%d ports with %d frontends, want 10", len(got.Ports), got.Used.Frontends)
	}
}

// looked is how many endpoints the ports of the last plan have looked at.
func (p *Planner) looked() int { return visits*p.Limits.Elements.N - p.room.visits }

// TestManyPortsWithTheirOwnEndpoints: a port looks at its own endpoints only, so that all are served.
func TestManyPortsWithTheirOwnEndpoints(t *testing.T) {
	const ports, each = 1000, 100
	list := spread(state.IPv4, ports*each)
	svc := service(func(s *state.Service) { clusterIPOnly(s); s.Ports = manyPorts(ports, nil) })
	for i, sl := range list {
		sl.Ports = []state.SlicePort{{Name: svc.Ports[i].Name, Protocol: state.TCP, Port: 8080}}
	}
	p := Planner{Limits: Limits{Elements: Limit{N: ports * each, Flag: "--most"}}}
	got := p.Plan(svc, list, environment())
	if n := p.looked(); n != ports*each || got.Cut || got.Used.Elements == 0 {
		t.Errorf("%d endpoints are looked at for %d elements, cut %t", n, got.Used.Elements, got.Cut)
	}
}

// TestManyPortsWithManyAddresses: addresses without room cost a port nothing, also if room is kept for other kinds.
func TestManyPortsWithManyAddresses(t *testing.T) {
	svc := service(func(s *state.Service) { clusterIPOnly(s); s.Ports = manyPorts(2000, nil) })
	svc.LoadBalancerIPs = svc.ClusterIPs // room is kept for them, which nobody takes
	for i := range 16_000 {
		svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}))
	}
	p := Planner{Limits: Limits{Frontends: Limit{N: 4096, Flag: "--most"}}}
	p.Plan(svc, nil, environment()) // for the buffers
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := p.Plan(svc, nil, environment())
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 8 || got.Used.Frontends != 2096 {
		t.Errorf("%d MiB for %d frontends", n, got.Used.Frontends)
	}
}

// TestManyPortsWithManySlices: slices that do not serve a port cost nothing for it.
func TestManyPortsWithManySlices(t *testing.T) {
	list := make([]*state.Slice, maxSlices)
	ports := manyPorts(8000, nil)
	for i := range list {
		list[i] = slice(fmt.Sprint("a", i), "10.0.0.1")
		list[i].Ports = []state.SlicePort{{Name: ports[i].Name, Protocol: state.TCP, Port: 8080}}
	}
	svc := service(func(s *state.Service) { clusterIPOnly(s); s.Ports = ports })
	var p Planner
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := p.Plan(svc, list, environment())
	runtime.ReadMemStats(&after)
	served := slices.DeleteFunc(got.Ports, func(p Port) bool { return len(p.Cluster) == 0 })
	if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 20 || len(served) != maxSlices {
		t.Errorf("%d MiB for %d ports of which %d are served", n, len(ports), len(served))
	}
}

// TestFlowsHaveRoom: ports with many endpoints that only keep their flows leave room for the next port.
func TestFlowsHaveRoom(t *testing.T) {
	svc := service(func(s *state.Service) {
		clusterIPOnly(s)
		s.Ports[0].Protocol, s.Ports[1].Protocol = state.UDP, state.UDP
	})
	list := slice("a", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4 draining", "10.0.0.5 draining", "10.0.0.6 draining")
	list.Ports = []state.SlicePort{{Name: "http", Protocol: state.UDP, Port: 8080}, {Name: "https", Protocol: state.UDP, Port: 8443}}
	p := Planner{Limits: Limits{Elements: Limit{N: 8, Flag: "--most"}}}
	got := p.Plan(svc, []*state.Slice{list}, environment())
	equal(t, "ports", outline(got), "cn 3, cn 2")
	equal(t, "flows stay", showAddrs(got.Ports[0].Serving), "10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080 10.0.0.4:8080 10.0.0.5:8080 10.0.0.6:8080")
	equal(t, "flows stay at the next port", showAddrs(got.Ports[1].Serving), "10.0.0.1:8443 10.0.0.2:8443 10.0.0.3:8443")
}

// TestResetsNeedRoom: without room for all endpoints, nobody knows which ones are gone, and no connection is reset.
func TestResetsNeedRoom(t *testing.T) {
	for limit, resets := range map[int]bool{4: true, 3: false} {
		svc := service(func(s *state.Service) { clusterIPOnly(s); s.OnRemoval = state.ResetThose })
		p := Planner{Limits: Limits{Elements: Limit{N: limit, Flag: "--most"}}}
		got := p.Plan(svc, []*state.Slice{slice("a", "10.0.0.1", "10.0.0.2 notready", "10.0.0.3 notready")}, environment())
		equal(t, fmt.Sprintf("limit %d: resets", limit), got.Ports[0].Resets, resets)
	}
}

// TestRangeLimit: frontends with ranges of ports get room in the order of trust, and count twice in IPv6. Those with one port do
// not need that room.
func TestRangeLimit(t *testing.T) {
	ranged := func(s *state.Service) {
		everything(s)
		s.Ports[0].EndPort, s.Ports[0].NodePort = 90, 0
		s.Ports = append(s.Ports, state.ServicePort{Name: "https", Protocol: state.TCP, Port: 443})
	}
	for _, tt := range []struct {
		limit, used, cut int
		want             string // of the range in IPv4 and IPv6; the other port has all frontends
	}{
		{99, 10, 0, "cell cel"},
		{10, 10, 0, "cell cel"},
		{9, 8, 1, "cell cl"}, // one is left, which is not enough for an external IP in IPv6
		{8, 8, 1, "cell cl"},
		{7, 7, 2, "cll cl"},
		{4, 4, 4, "cl c"},
		{2, 1, 6, "c "},
		{1, 1, 6, "c "},
	} {
		p := Planner{Limits: Limits{Ranges: Limit{N: tt.limit, Flag: "--most"}}}
		got := p.Plan(service(ranged), nil, environment())
		of := map[state.Family]string{}
		for _, port := range got.Ports {
			text := ""
			for _, fe := range port.Frontends {
				text += [...]string{ClusterIP: "c", ExternalIP: "e", LoadBalancer: "l"}[fe.Kind]
			}
			if port.Name == "shop/web:http" {
				of[port.Family] = text
			} else if want := map[state.Family]string{state.IPv4: "cell", state.IPv6: "cel"}[port.Family]; text != want {
				t.Errorf("limit %d: %s has %s, want %s", tt.limit, port.Name, text, want)
			}
		}
		what := fmt.Sprintf("limit %d", tt.limit)
		equal(t, what, of[state.IPv4]+" "+of[state.IPv6], tt.want)
		equal(t, what+": used", got.Used.Ranges, tt.used)
		equal(t, what+": cut", got.Cut, tt.cut > 0)
		problem := ""
		if tt.cut > 0 {
			problem = fmt.Sprintf("Service shop/web spec.ports: %d frontends with port ranges have no room (--most, one in IPv6 counts twice) and are "+
				"not served: older Services have room first, and of one Service cluster IPs, then load balancer IPs and external IPs", tt.cut)
		}
		equal(t, what+": problem", reasons(got.Problems), problem)
	}
}

// TestRangesOfManyAddresses: a Service with hundreds or thousands of ranges and addresses gets what its room allows, and no more.
func TestRangesOfManyAddresses(t *testing.T) {
	for _, n := range []int{400, 4000} {
		svc := service(func(s *state.Service) {
			s.Ports, s.ExternalIPs = nil, nil
			for i := range n {
				s.Ports = append(s.Ports, state.ServicePort{Name: fmt.Sprint("p", i), Protocol: state.UDP, Port: uint16(1000 + 2*i), EndPort: uint16(1001 + 2*i)})
				s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}))
			}
		})
		p := Planner{Limits: Limits{Ranges: Limit{N: 12, Flag: "--most"}}}
		got, served := p.Plan(svc, nil, environment()), 0
		for _, port := range got.Ports {
			served += len(port.Frontends)
		}
		equal(t, fmt.Sprint(n, " ranges: used"), got.Used, Usage{Frontends: served, Ranges: 12})
	}
}
