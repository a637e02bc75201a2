package plan

import (
	"fmt"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

func TestSourceRanges(t *testing.T) {
	const open = "open"
	tests := []struct {
		name       string
		ranges     string
		ipv4, ipv6 string
		problem    bool
	}{
		{"none", "", open, open, false},
		{"both families", "10.9.0.0/16 fd00:9::/32", "[10.9.0.0/16]", "[fd00:9::/32]", false},
		{"only IPv4 closes IPv6", "10.9.0.0/16", "[10.9.0.0/16]", "[]", true},
		{"only IPv6 closes IPv4", "fd00:9::/32", "[]", "[fd00:9::/32]", true},
		{"everyone in IPv4 leaves IPv6 open", "0.0.0.0/0", open, open, false},
		{"everyone in IPv6 leaves IPv4 open", "::/0", open, open, false},
		{"everyone next to a narrower range", "10.9.0.0/16 0.0.0.0/0", open, open, false},
		{"everyone in IPv4, some in IPv6", "0.0.0.0/0 fd00:9::/32", open, "[fd00:9::/32]", false},
		{"sorted, nested and repeated ones left out", "10.9.1.0/24 10.8.0.0/16 10.9.0.0/16 10.9.0.0/16 10.9.2.1/32 fd00:9::/32",
			"[10.8.0.0/16 10.9.0.0/16]", "[fd00:9::/32]", false},
		{"of two with the same first address, the wider one stays", "10.9.0.0/24 10.9.0.0/16 fd00:9::/64 fd00:9::/32", "[10.9.0.0/16]", "[fd00:9::/32]", false},
		{"host bits", "10.9.7.7/16 fd00:9::9/32", "[10.9.0.0/16]", "[fd00:9::/32]", false},
		{"the node is allowed: so are the addresses of the load balancer", "192.168.0.0/24 fd00:9::/32",
			"[192.168.0.0/24 198.51.100.1/32 198.51.100.2/32]", "[fd00:9::/32]", false},
		{"the same for IPv6", "10.9.0.0/16 fd00:1::/64", "[10.9.0.0/16]", "[2001:db8:1::1/128 fd00:1::/64]", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := service(everything)
			svc.SourceRanges = prefixes(tt.ranges)
			got := planned(svc, nil, environment())
			equal(t, "IPv4", sourcesOf(t, got, state.IPv4), tt.ipv4)
			equal(t, "IPv6", sourcesOf(t, got, state.IPv6), tt.ipv6)
			equal(t, "reported", len(got.Problems) == 1, tt.problem)
		})
	}
}

// TestNoSource: ranges that nobody can read admit nobody, in both families. Whoever read them has reported it.
func TestNoSource(t *testing.T) {
	svc := service(everything)
	svc.NoSource = true
	got := planned(svc, nil, environment())
	equal(t, "IPv4", sourcesOf(t, got, state.IPv4), "[]")
	equal(t, "IPv6", sourcesOf(t, got, state.IPv6), "[]")
	equal(t, "problems", len(got.Problems), 0)
}

// sourcesOf returns the sources of the load balancer frontend as text. It checks that no other frontend is filtered.
func sourcesOf(t *testing.T, s Service, family state.Family) string {
	t.Helper()
	p := portOf(t, s, family, "shop/web:http")
	for _, fe := range p.Frontends {
		if fe.Kind != LoadBalancer && (fe.Firewalled || fe.Sources != nil) {
			t.Errorf("%v is filtered", fe.Kind)
		}
	}
	lb := frontendOf(t, p, LoadBalancer)
	if !lb.Firewalled {
		if lb.Sources != nil {
			t.Errorf("the frontend is open, but has sources %v", lb.Sources)
		}
		return "open"
	}
	return fmt.Sprint(lb.Sources)
}

func TestClosedFamilyIsReported(t *testing.T) {
	svc := service(everything)
	svc.SourceRanges = prefixes("10.9.0.0/16")
	equal(t, "problems", planned(svc, nil, environment()).Problems, []state.Problem{{
		Kind: "Service", Object: state.Name{Namespace: "shop", Name: "web"}, Field: "spec.loadBalancerSourceRanges",
		Reason: "no range is IPv6: nobody may use the IPv6 addresses of the load balancer; add a range of that family to allow it",
	}})

	quiet := map[string]func(*state.Service, *Environment){
		"no load balancer address of the family": func(s *state.Service, _ *Environment) { s.LoadBalancerIPs = addrs("198.51.100.1") },
		"a family that this node does not serve": func(_ *state.Service, e *Environment) { e.IPv6 = false },
		"a family that the Service does not have": func(s *state.Service, _ *Environment) {
			s.ClusterIPs = addrs("10.96.0.10")
		},
	}
	for name, edit := range quiet {
		svc, env := service(everything), environment()
		svc.SourceRanges = prefixes("10.9.0.0/16")
		edit(svc, env)
		if got := planned(svc, nil, env).Problems; got != nil {
			t.Errorf("%s: reported %v", name, got)
		}
	}
}

// TestRangesOfTheInputStay: planning neither sorts nor shortens the list in the state.
func TestRangesOfTheInputStay(t *testing.T) {
	svc := service(everything)
	svc.SourceRanges = prefixes("10.9.1.0/24 10.9.0.0/16 fd00:9::/32")
	planned(svc, nil, environment())
	equal(t, "ranges", svc.SourceRanges, prefixes("10.9.1.0/24 10.9.0.0/16 fd00:9::/32"))
}
