package plan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// describe prints a frontend in one line.
func describe(fe Frontend) string {
	policy := [...]string{"", "cluster", "local", "source"}[fe.Pool]
	unserved := [...]string{"served", "reject", "drop"}[fe.Refusal]
	masquerade := [...]string{"off-cluster", "always", "node"}[fe.Masquerade]
	addr := "*"
	if fe.Addr.IsValid() {
		addr = fe.Addr.String()
	}
	line := fmt.Sprintf("%v %s %d %s %s %s", fe.Kind, addr, fe.Port, policy, unserved, masquerade)
	if fe.Firewalled {
		line += fmt.Sprint(" from ", fe.Sources)
	}
	return line
}

func describeAll(p *Port) (lines []string) {
	for _, fe := range p.Frontends {
		lines = append(lines, describe(fe))
	}
	return lines
}

func everything(s *state.Service) {
	s.ExternalIPs = addrs("203.0.113.1 2001:db8::1")
	s.LoadBalancerIPs = addrs("198.51.100.1 198.51.100.2 2001:db8:1::1")
	s.Ports[0].NodePort = 30080
}

func TestFrontendsOfBothFamilies(t *testing.T) {
	list := []*state.Slice{slice("a", "10.0.0.1"), slice("b", "fd00::1")}
	got := planned(service(everything), list, environment())
	equal(t, "IPv4", describeAll(portOf(t, got, state.IPv4, "shop/web:http")), []string{
		"cluster IP 10.96.0.10 80 cluster served off-cluster",
		"external IP 203.0.113.1 80 cluster served always",
		"load balancer 198.51.100.1 80 cluster served always",
		"load balancer 198.51.100.2 80 cluster served always",
		"node port * 30080 cluster served always",
	})
	equal(t, "IPv6", describeAll(portOf(t, got, state.IPv6, "shop/web:http")), []string{
		"cluster IP fd00:96::10 80 cluster served off-cluster",
		"external IP 2001:db8::1 80 cluster served always",
		"load balancer 2001:db8:1::1 80 cluster served always",
		"node port * 30080 cluster served always",
	})
}

func TestPolicies(t *testing.T) {
	const (
		ready  = "10.0.0.1 @node-a"
		remote = "10.0.0.2"
	)
	tests := []struct {
		name               string
		internal, external bool
		endpoints          []string
		cluster, node      string
	}{
		{"cluster, served", false, false, []string{remote}, "cluster served off-cluster", "cluster served always"},
		{"cluster, no endpoint", false, false, nil, "cluster reject off-cluster", "cluster reject always"},
		{"cluster, none ready", false, false, []string{"10.0.0.1 notready"}, "cluster reject off-cluster", "cluster reject always"},
		{"cluster, draining", false, false, []string{"10.0.0.1 draining"}, "cluster served off-cluster", "cluster served always"},
		{"internal local, served", true, false, []string{ready, remote}, "local served off-cluster", "cluster served always"},
		{"internal local, remote only", true, false, []string{remote}, "local drop off-cluster", "cluster served always"},
		{"internal local, remote draining only", true, false, []string{"10.0.0.2 draining"}, "local drop off-cluster", "cluster served always"},
		{"internal local, none", true, false, nil, "local reject off-cluster", "cluster reject always"},
		{"external local, served", false, true, []string{ready}, "cluster served off-cluster", "source served node"},
		{"external local, local draining", false, true, []string{"10.0.0.1 @node-a draining", remote},
			"cluster served off-cluster", "source served node"},
		{"external local, remote only", false, true, []string{remote}, "cluster served off-cluster", "source drop node"},
		{"external local, none", false, true, nil, "cluster reject off-cluster", "source reject node"},
		{"both local, remote only", true, true, []string{remote}, "local drop off-cluster", "source drop node"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := service(everything)
			svc.InternalLocal, svc.ExternalLocal = tt.internal, tt.external
			p := portOf(t, planned(svc, []*state.Slice{slice("a", tt.endpoints...)}, environment()), state.IPv4, "shop/web:http")
			equal(t, "frontends", describeAll(p), []string{
				"cluster IP 10.96.0.10 80 " + tt.cluster,
				"external IP 203.0.113.1 80 " + tt.node,
				"load balancer 198.51.100.1 80 " + tt.node,
				"load balancer 198.51.100.2 80 " + tt.node,
				"node port * 30080 " + tt.node,
			})
		})
	}
}

// TestPoolsOnlyWhereNeeded: a pool that no frontend uses would cost elements in the kernel.
func TestPoolsOnlyWhereNeeded(t *testing.T) {
	tests := []struct {
		name           string
		edit           func(*state.Service)
		cluster, local string
	}{
		{"cluster IP", nil, "10.0.0.1:8080", ""},
		{"cluster IP, external policy local without external frontends",
			func(s *state.Service) { s.ExternalLocal = true }, "10.0.0.1:8080", ""},
		{"internal policy local", func(s *state.Service) { s.InternalLocal = true }, "", "10.0.0.1:8080"},
		{"internal policy local and a node port",
			func(s *state.Service) { s.InternalLocal, s.Ports[0].NodePort = true, 30080 }, "10.0.0.1:8080", "10.0.0.1:8080"},
		{"external policy local and an external IP",
			func(s *state.Service) { s.ExternalLocal, s.ExternalIPs = true, addrs("203.0.113.1") }, "10.0.0.1:8080", "10.0.0.1:8080"},
		{"external policy local and an external IP of the other family",
			func(s *state.Service) { s.ExternalLocal, s.ExternalIPs = true, addrs("2001:db8::1") }, "10.0.0.1:8080", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			list := []*state.Slice{slice("a", "10.0.0.1 @node-a")}
			p := portOf(t, planned(service(tt.edit), list, environment()), state.IPv4, "shop/web:http")
			equal(t, "Cluster", show(p.Cluster), tt.cluster)
			equal(t, "Local", show(p.Local), tt.local)
		})
	}
}

func TestFamilies(t *testing.T) {
	tests := []struct {
		name       string
		clusterIPs string
		ipv4, ipv6 bool
		want       []state.Family
	}{
		{"dual", "10.96.0.10 fd00:96::10", true, true, []state.Family{state.IPv4, state.IPv6}},
		{"order of cluster IPs does not matter", "fd00:96::10 10.96.0.10", true, true, []state.Family{state.IPv4, state.IPv6}},
		{"IPv4 node", "10.96.0.10 fd00:96::10", true, false, []state.Family{state.IPv4}},
		{"IPv6 node", "10.96.0.10 fd00:96::10", false, true, []state.Family{state.IPv6}},
		{"IPv4 Service", "10.96.0.10", true, true, []state.Family{state.IPv4}},
		{"IPv6 Service on an IPv4 node", "fd00:96::10", true, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := environment()
			env.IPv4, env.IPv6 = tt.ipv4, tt.ipv6
			svc := service(everything)
			svc.ClusterIPs = addrs(tt.clusterIPs)
			var got []state.Family
			for _, p := range planned(svc, nil, env).Ports {
				got = append(got, p.Family)
			}
			equal(t, "families", got, tt.want)
		})
	}
}

// TestOneFrontendPerAddress: an address that a Service has twice becomes one frontend, the more restricted one.
func TestOneFrontendPerAddress(t *testing.T) {
	svc := service(func(s *state.Service) {
		s.ExternalIPs = addrs("198.51.100.1 203.0.113.1 10.96.0.10")
		s.LoadBalancerIPs = addrs("198.51.100.1 10.96.0.10")
		s.SourceRanges = prefixes("10.0.0.0/8")
	})
	p := portOf(t, planned(svc, []*state.Slice{slice("a", "10.0.0.1")}, environment()), state.IPv4, "shop/web:http")
	equal(t, "frontends", describeAll(p), []string{
		"cluster IP 10.96.0.10 80 cluster served off-cluster",
		"external IP 203.0.113.1 80 cluster served always",
		"load balancer 198.51.100.1 80 cluster served always from [10.0.0.0/8]",
	})
}

func TestAffinityAndBalancing(t *testing.T) {
	asked := state.Balancing{Scheduler: "mh", Flags: "mh-port"}
	svc := service(func(s *state.Service) { s.Affinity, s.Balancing = 3600e9, asked })
	for _, p := range planned(svc, nil, environment()).Ports {
		equal(t, "affinity", p.Affinity.Hours(), 1.0)
		equal(t, "balancing", p.Balancing, asked)
	}
}

// TestPlannerReuse: the buffers carry nothing from the plan of one Service to the plan of the next.
func TestPlannerReuse(t *testing.T) {
	type input struct {
		svc  *state.Service
		list []*state.Slice
	}
	inputs := []input{
		{service(everything), []*state.Slice{slice("a", "10.0.0.1 @node-a zone=zone-1", "10.0.0.2"), slice("b", "fd00::1")}},
		{service(nil), nil},
		{service(func(s *state.Service) { s.ExternalLocal = true; everything(s) }), spread(state.IPv6, 700)},
		{service(func(s *state.Service) { s.Ports[0].Protocol = state.UDP }), []*state.Slice{udp(slice("a", "10.0.0.7"))}},
		{service(func(s *state.Service) { s.InternalLocal = true }), spread(state.IPv4, 300)},
	}
	var p Planner
	var first []Service
	for _, in := range inputs {
		first = append(first, p.Plan(in.svc, in.list, environment()))
	}
	slices.Reverse(inputs)
	for i, in := range inputs {
		fresh := planned(in.svc, in.list, environment())
		equal(t, "planned again", p.Plan(in.svc, in.list, environment()), fresh)
		equal(t, "planned before", first[len(inputs)-1-i], fresh)
	}
}

// TestEndpointInServiceRange: an endpoint with a cluster IP or an address next to one is left out, with a Problem, and explained. Others
// take its place. Nobody is left out where the ranges are not known.
func TestEndpointInServiceRange(t *testing.T) {
	list := []*state.Slice{slice("a", "10.96.0.10 @node-a", "10.96.9.9 draining", "10.0.0.1"), slice("b", "fd00:96::10")}
	env := environment()
	svc := service(func(s *state.Service) {
		s.Ports[0].Protocol, list[0].Ports[0].Protocol, list[1].Ports[0].Protocol = state.UDP, state.UDP, state.UDP
	})
	equal(t, "without ranges", show(portOf(t, planned(svc, list, env), state.IPv4, "shop/web:http").Cluster), "10.0.0.1:8080 10.96.0.10:8080")
	env.ServiceCIDRs = prefixes("10.96.0.0/16 fd00:96::/112")
	got := planned(svc, list, env)
	p4, p6 := portOf(t, got, state.IPv4, "shop/web:http"), portOf(t, got, state.IPv6, "shop/web:http")
	equal(t, "endpoints", show(p4.Cluster)+" "+show(p6.Cluster), "10.0.0.1:8080 ")
	equal(t, "endpoints that keep flows", fmt.Sprint(p4.Serving, p6.Serving), "[10.0.0.1:8080] []")
	equal(t, "refusals", []serviceport.Refusal{p4.Frontends[0].Refusal, p6.Frontends[0].Refusal}, []serviceport.Refusal{serviceport.NoRefusal, serviceport.Reject})
	equal(t, "problems", len(got.Problems), 2)
	equal(t, "problem", got.Problems[0].Field+": "+got.Problems[0].Reason, "spec.selector: 2 endpoints (IPv4) have addresses in a ServiceCIDR, "+
		"where nobody takes connections but Services, and are not used: name the endpoints of that Service instead")
	var fates []string
	var planner Planner
	for _, f := range planner.Fates(svc, list, env) {
		fates = append(fates, f.OutOfCluster)
	}
	why := "in a ServiceCIDR, whose addresses are no endpoints"
	equal(t, "fates", fates, []string{"", why, why, why})
}

// TestRange: a range has no node port, and keeps the ports of packets. So it uses only endpoints that serve at its first port.
func TestRange(t *testing.T) {
	svc := service(func(s *state.Service) {
		everything(s)
		s.Ports[0].EndPort = 90
	})
	same, shifted := slice("same", "10.0.0.1"), slice("shifted", "10.0.0.2", "10.0.0.3")
	same.Ports[0].Port = 80
	got := planned(svc, []*state.Slice{same, shifted}, environment())
	p := portOf(t, got, state.IPv4, "shop/web:http")
	equal(t, "endpoints", show(p.Cluster), "10.0.0.1:80")
	for _, fe := range p.Frontends {
		if fe.Kind == NodePort || fe.Port != 80 || fe.EndPort != 90 {
			t.Errorf("frontend %+v, want the range 80-90", fe)
		}
	}
	var reasons []string
	for _, problem := range state.Bound(state.Object{}, got.Problems) {
		reasons = append(reasons, problem.Field+": "+problem.Reason)
	}
	equal(t, "problems", reasons, []string{
		"spec.ports.nodePort: node port 30080 is not served: a node port stands for one port, and not for the range 80-90",
		"spec.ports.targetPort: 2 endpoints are not used: connections to the range 80-90 keep their port, so the target port " +
			"must be 80, the first one of the range",
	})
	equal(t, "room", got.Used.Frontends, 7)
	shifted.Endpoints = shifted.Endpoints[:1]
	if list := state.Bound(state.Object{}, planned(svc, []*state.Slice{same, shifted}, environment()).Problems); len(list) != 2 {
		t.Errorf("one endpoint is not used: %+v", list)
	}
	svc.Ports[0].NodePort = 0
	if list := state.Bound(state.Object{}, planned(svc, []*state.Slice{same}, environment()).Problems); len(list) != 0 {
		t.Errorf("nothing is wrong: %+v", list)
	}
}
