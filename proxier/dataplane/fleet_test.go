package dataplane

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestAnswers: which address a fleet's node answers with, and which Problem the Service gets.
func TestAnswers(t *testing.T) {
	open := func(kind plan.FrontendKind, addr string) plan.Frontend {
		return plan.Frontend{Kind: kind, Frontend: serviceport.Frontend{Addr: netip.MustParseAddr(addr), Port: 80, Pool: serviceport.BySource, Masquerade: serviceport.MasqueradeNode}}
	}
	masqueraded := open(plan.LoadBalancer, "192.0.2.9")
	masqueraded.Masquerade = serviceport.MasqueradeAlways
	hash := method{nft: program.SourceHash}
	for name, tt := range map[string]struct {
		m        method
		protocol state.Protocol
		list     []plan.Frontend
		want     string
		problem  string
	}{
		"one":             {hash, state.TCP, []plan.Frontend{open(plan.ClusterIP, "10.96.0.1"), open(plan.LoadBalancer, "192.0.2.1")}, "192.0.2.1:80", ""},
		"external, IPv6":  {method{nft: program.SourcePortHash}, state.TCP, []plan.Frontend{open(plan.ExternalIP, "2001:db8::1")}, "[2001:db8::1]:80", ""},
		"only internal":   {hash, state.TCP, []plan.Frontend{open(plan.ClusterIP, "10.96.0.1")}, "", ""},
		"two":             {hash, state.TCP, []plan.Frontend{open(plan.ExternalIP, "192.0.2.1"), open(plan.LoadBalancer, "192.0.2.2")}, "", "2 external addresses"},
		"masqueraded":     {hash, state.TCP, []plan.Frontend{masqueraded}, "", "externalTrafficPolicy Local"},
		"masqueraded too": {hash, state.TCP, []plan.Frontend{masqueraded, open(plan.ExternalIP, "192.0.2.1")}, "192.0.2.1:80", "masqueraded"},
		"UDP":             {hash, state.UDP, []plan.Frontend{open(plan.LoadBalancer, "192.0.2.1")}, "", ""},
		"at random":       {method{nft: program.Random}, state.TCP, []plan.Frontend{masqueraded}, "", ""},
		"IPVS":            {method{nft: program.SourceHash, ipvs: true}, state.TCP, []plan.Frontend{open(plan.LoadBalancer, "192.0.2.1")}, "", "only nft"},
	} {
		t.Run(name, func(t *testing.T) {
			port := plan.Port{Name: "ns/a:p", Protocol: tt.protocol, Frontends: tt.list}
			got := answers(&port, &tt.m)
			if got.IsValid() != (tt.want != "") || got.IsValid() && got.String() != tt.want {
				t.Errorf("got %s, want %q", got, tt.want)
			}
			if (tt.m.problem == "") != (tt.problem == "") || !strings.Contains(tt.m.problem, tt.problem) {
				t.Errorf("problem %q, want %q", tt.m.problem, tt.problem)
			}
		})
	}
}
