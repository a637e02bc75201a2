package plan

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestManyPorts: a Service with many ports finds the numbers of its ports in each slice, as one with few ports does.
func TestManyPorts(t *testing.T) {
	for _, n := range []int{few, few + 1} {
		svc := service(func(s *state.Service) { s.Ports = nil })
		a, b := slice("a", "10.0.0.1"), slice("b", "10.0.0.2")
		a.Ports, b.Ports = nil, nil
		for i := range n {
			name := fmt.Sprint("p", i/2)
			protocol, number := []state.Protocol{state.TCP, state.UDP}[i%2], uint16(8000+i)
			svc.Ports = append(svc.Ports, state.ServicePort{Name: name, Protocol: protocol, Port: uint16(80 + i)})
			a.Ports = append(a.Ports, state.SlicePort{Name: name, Protocol: protocol, Port: number})
			b.Ports = append(b.Ports, state.SlicePort{Name: name, Protocol: protocol, Port: number + 1000})
		}
		b.Ports = append(b.Ports[1:], state.SlicePort{Name: "other", Protocol: state.TCP, Port: 1}, // it does not serve the first port
			state.SlicePort{Name: "p1", Protocol: state.TCP, Port: 2}) // the first of equal ports counts
		for i, p := range planned(svc, []*state.Slice{a, b}, environment()).Ports[:n] {
			want := fmt.Sprintf("10.0.0.1:%d 10.0.0.2:%d", 8000+i, 9000+i)
			if i == 0 {
				want = "10.0.0.1:8000"
			}
			equal(t, fmt.Sprintf("port %d of %d", i, n), show(p.Cluster), want)
		}
	}
}

// TestTooManySlicePorts: of slices with more ports than are looked at, the first ones are used, and the very first one in any case.
func TestTooManySlicePorts(t *testing.T) {
	for want, ports := range map[int][]int{1: {maxSlicePorts + 1, 1}, 2: {maxSlicePorts - 1, 1, 1}} {
		var list []*state.Slice
		for _, n := range ports {
			sl := slice("a", "10.0.0.1")
			sl.Ports = make([]state.SlicePort, n)
			list = append(list, sl)
		}
		var named namedPorts
		equal(t, fmt.Sprintf("slices with %d ports: used", ports), named.fill(make([]state.ServicePort, few+1), list), want)
	}
}

// TestManyAddresses: an address in both lists is one frontend, whether the lists are short or long.
func TestManyAddresses(t *testing.T) {
	for _, n := range []int{few, few + 1} {
		svc := service(func(s *state.Service) {
			s.ClusterIPs = s.ClusterIPs[:1]
			for i := range byte(n) {
				s.LoadBalancerIPs = append(s.LoadBalancerIPs, netip.AddrFrom4([4]byte{198, 51, 100, i}))
			}
			s.ExternalIPs = append(slices.Clone(s.LoadBalancerIPs), netip.MustParseAddr("203.0.113.1"))
		})
		p := portOf(t, planned(svc, nil, environment()), state.IPv4, "shop/web:http")
		equal(t, fmt.Sprintf("%d addresses", n), len(p.Frontends), n+2)
		equal(t, "external IP", frontendOf(t, p, ExternalIP).Addr.String(), "203.0.113.1")
	}
}

// TestDraining: while the node drains, it takes no connections, and clients try other nodes.
func TestDraining(t *testing.T) {
	env := environment()
	env.Draining = true
	got := planned(service(everything), []*state.Slice{slice("a", "10.0.0.1 @node-a", "10.0.0.2")}, env)
	for _, fe := range portOf(t, got, state.IPv4, "shop/web:http").Frontends {
		equal(t, fe.Kind.String(), fe.Refusal, serviceport.Drop)
	}
}

// TestDrainingElsewhere: the last endpoint serves while it terminates, on another node. The next try of a client may reach that one.
func TestDrainingElsewhere(t *testing.T) {
	svc := service(func(s *state.Service) { s.InternalLocal = true })
	got := planned(svc, []*state.Slice{slice("a", "10.0.0.1 draining")}, environment())
	equal(t, "cluster IP", frontendOf(t, portOf(t, got, state.IPv4, "shop/web:http"), ClusterIP).Refusal, serviceport.Drop)
}

// TestSourcesStay: a Service whose answers return through this node keeps the addresses of its clients.
func TestSourcesStay(t *testing.T) {
	svc := service(func(s *state.Service) { everything(s); s.KeepsSources = true })
	got := portOf(t, planned(svc, nil, environment()), state.IPv4, "shop/web:http")
	equal(t, "cluster IP", frontendOf(t, got, ClusterIP).Masquerade, serviceport.NoMasquerade)
	for _, kind := range []FrontendKind{ExternalIP, LoadBalancer, NodePort} {
		equal(t, kind.String(), frontendOf(t, got, kind).Masquerade, serviceport.MasqueradeNode)
	}
}

// TestLevelsOfOnePort: the hints of one port's endpoints choose nothing at another port.
func TestLevelsOfOnePort(t *testing.T) {
	svc := service(func(s *state.Service) {
		s.Ports = append(s.Ports, state.ServicePort{Name: "https", Protocol: state.TCP, Port: 443})
	})
	hinted := slice("a", "10.0.0.1 zone=zone-1", "10.0.0.2 zone=zone-2")
	both := slice("b", "10.0.0.3 zone=zone-1", "10.0.0.4")
	both.Ports[0].Name = "https"
	got := planned(svc, []*state.Slice{hinted, both}, environment())
	equal(t, "http", show(portOf(t, got, state.IPv4, "shop/web:http").Cluster), "10.0.0.1:8080")
	equal(t, "https", show(portOf(t, got, state.IPv4, "shop/web:https").Cluster), "10.0.0.3:8080 10.0.0.4:8080")
}

// TestPlainNames: a name has letters, digits and a few signs as they are.
func TestPlainNames(t *testing.T) {
	for _, name := range []string{"az-AZ.09_~", "%40", "%2F", "%3A", "%5B", "%60", "%7B"} {
		raw := name
		if code, ok := strings.CutPrefix(name, "%"); ok {
			var c int
			if _, err := fmt.Sscanf(code, "%X", &c); err != nil {
				t.Fatal(err)
			}
			raw = string(rune(c))
		}
		equal(t, "name", portNames(t, "d", raw, state.ServicePort{Name: "p", Protocol: state.TCP, Port: 1}), []string{"d/" + name + ":p"})
	}
}

// TestProblemsNameTheService: whoever reads a Problem finds the object and the field.
func TestProblemsNameTheService(t *testing.T) {
	svc := service(func(s *state.Service) { twoPorts(s); s.Ports[0].EndPort = 90 })
	env := environment()
	env.ExternalIPs = prefixes("203.0.113.1/32")
	equal(t, "problems", reasons(planned(svc, nil, env).Problems),
		"Service shop/web spec.externalIPs: 1 of 2 addresses are outside of --external-ip-cidrs; they are not served\n"+
			"Service shop/web spec.ports.nodePort: node port 30080 is not served: a node port stands for one port, and not for the range 80-90")
}

// TestServingWins: of two objects for one endpoint, the one that serves keeps the flows.
func TestServingWins(t *testing.T) {
	svc := service(func(s *state.Service) { s.Ports[0].Protocol = state.UDP })
	serving := servingNotReady("10.0.0.1")
	list := []*state.Slice{udp(slice("a", "10.0.0.1 notready")), udp(serving), udp(slice("c", "10.0.0.1 notready"))}
	equal(t, "Serving", showAddrs(portOf(t, planned(svc, list, environment()), state.IPv4, "shop/web:http").Serving), "10.0.0.1:8080")
}

// TestBadInOneFamily: an address that fails counts for the health check of its own family.
func TestBadInOneFamily(t *testing.T) {
	svc := service(func(s *state.Service) { everything(s); s.ExternalLocal, s.HealthCheckNodePort = true, 31000 })
	p := Planner{Health: fails(true, "10.0.0.1")}
	list := []*state.Slice{slice("a", "10.0.0.1 @node-a", "10.0.0.2 @node-a"), slice("b", "fd00::1 @node-a")}
	equal(t, "health check", *p.Plan(svc, list, environment()).HealthCheck, HealthCheck{NodePort: 31000, LocalIPv4: 1, LocalIPv6: 1})
}

// TestLoadBalancerAlone: clients from outside reach all endpoints of a Service without cluster IPs, whatever its internal policy.
func TestLoadBalancerAlone(t *testing.T) {
	svc := service(func(s *state.Service) {
		s.ClusterIPs, s.LoadBalancerIPs, s.InternalLocal = nil, addrs("198.51.100.1"), true
	})
	p := portOf(t, planned(svc, []*state.Slice{slice("a", "10.0.0.1", "10.0.0.2")}, environment()), state.IPv4, "shop/web:http")
	equal(t, "Cluster", show(p.Cluster), "10.0.0.1:8080 10.0.0.2:8080")
	equal(t, "load balancer", frontendOf(t, p, LoadBalancer).Refusal, serviceport.NoRefusal)
}

// TestSlicesTimesPorts: many slices with many ports, as weights make them, take no more time than the limit of elements allows.
func TestSlicesTimesPorts(t *testing.T) {
	const ports = 2000
	svc := &state.Service{Name: state.Name{Namespace: "shop", Name: "web"}, LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	var numbers []state.SlicePort
	for i := range uint16(ports) {
		name := fmt.Sprint("p", i)
		svc.Ports = append(svc.Ports, state.ServicePort{Name: name, Protocol: state.TCP, Port: i + 1})
		numbers = append(numbers, state.SlicePort{Name: name, Protocol: state.TCP, Port: i + 1})
	}
	const flag = "--max-service-elements"
	bytes := func(n int) (uint64, Service) {
		var list []*state.Slice
		for i := range n {
			list = append(list, &state.Slice{
				Name: state.Name{Namespace: "shop", Name: fmt.Sprint("s", i)}, Service: svc.Name, Family: state.IPv4, Weight: 1, Ports: numbers,
				Endpoints: []state.Endpoint{{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Ready: true, Serving: true}},
			})
		}
		p := Planner{Limits: Limits{Elements: Limit{100_000, flag}}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out := p.Plan(svc, list, &Environment{IPv4: true})
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc, out
	}
	few, _ := bytes(100)
	many, out := bytes(1000)
	if many > 2*few {
		t.Errorf("%d bytes for 100 slices, and %d for 1,000", few, many)
	}
	if len(out.Ports) != ports || len(out.Ports[ports-1].Cluster) == 0 || !strings.Contains(fmt.Sprint(out.Problems), flag) {
		t.Errorf("%d ports, the last one has %d endpoints: %v", len(out.Ports), len(out.Ports[ports-1].Cluster), out.Problems)
	}
}
