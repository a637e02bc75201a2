package plan

import (
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestExternalRanges: external IPs outside of the ranges are not served, and one Problem for each family says so.
func TestExternalRanges(t *testing.T) {
	svc := &state.Service{
		Name: state.Name{Namespace: "ns", Name: "web"}, ClusterIPs: addrs("10.96.0.1 fd00:96::1"),
		ExternalIPs: addrs("192.0.2.1 198.51.100.1 198.51.100.2 2001:db8::1"), LoadBalancerIPs: addrs("203.0.113.1"),
		Ports: []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80}},
	}
	env := environment()
	env.ExternalIPs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	got, closed := planned(svc, nil, env), env
	var served []netip.Addr
	for _, p := range got.Ports {
		for _, f := range p.Frontends {
			served = append(served, f.Addr)
		}
	}
	equal(t, "addresses", served, addrs("10.96.0.1 192.0.2.1 203.0.113.1 fd00:96::1"))
	var reasons []string
	for _, p := range got.Problems {
		reasons = append(reasons, p.Field+": "+p.Reason)
	}
	equal(t, "problems", reasons, []string{
		"spec.externalIPs: 2 of 4 addresses are outside of --external-ip-cidrs; they are not served",
		"spec.externalIPs: 1 of 4 addresses are outside of --external-ip-cidrs; they are not served",
	})
	closed.ExternalIPs = nil
	if got := planned(svc, nil, closed); len(got.Ports[0].Frontends) != 2 || got.Problems[0].Reason !=
		`3 of 4 addresses are forbidden by --external-ip-cidrs="" or by the feature gate AllowServiceExternalIPs=false; they are not served` {
		t.Errorf("nowhere: %v, problems %v", got.Ports[0].Frontends, got.Problems)
	}
}
