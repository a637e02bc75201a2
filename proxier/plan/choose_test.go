package plan

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

func backup(sl *state.Slice) *state.Slice { sl.Backup = true; return sl }

// TestBackups: a backup endpoint is in a pool only if no other endpoint is.
func TestBackups(t *testing.T) {
	for _, tt := range []struct {
		name           string
		primary        []string
		cluster, local string
	}{
		{"a primary", []string{"10.0.0.1"}, "10.0.0.1:8080", "10.0.0.8:8080"},
		{"a primary that drains", []string{"10.0.0.1 draining"}, "10.0.0.8:8080 10.0.0.9:8080", "10.0.0.8:8080"},
		{"a primary on this node", []string{"10.0.0.1 @node-a", "10.0.0.2"}, "10.0.0.1:8080 10.0.0.2:8080", "10.0.0.1:8080"},
		{"no primary", nil, "10.0.0.8:8080 10.0.0.9:8080", "10.0.0.8:8080"},
	} {
		svc := service(func(s *state.Service) {
			s.Ports[0].NodePort, s.ExternalLocal = 30080, true
		})
		list := []*state.Slice{slice("a", tt.primary...), backup(slice("b", "10.0.0.8 @node-a", "10.0.0.9"))}
		p := portOf(t, planned(svc, list, environment()), state.IPv4, "shop/web:http")
		equal(t, tt.name+": Cluster", show(p.Cluster), tt.cluster)
		equal(t, tt.name+": Local", show(p.Local), tt.local)
	}
}

// choosy is a Chooser that leaves endpoints out.
type choosy []netip.AddrPort

func (c choosy) Choose(_ *state.Service, _ state.Protocol, pool []Endpoint) []Endpoint {
	return slices.DeleteFunc(pool, func(e Endpoint) bool { return slices.Contains(c, e.Addr) })
}

func (c choosy) Dead(_ *state.Service, _ state.Protocol, at netip.AddrPort) bool {
	return slices.Contains(c, at)
}

// TestChosen: frontends without a chosen endpoint refuse, and flows leave dead endpoints.
func TestChosen(t *testing.T) {
	one, two := netip.MustParseAddrPort("10.0.0.1:8080"), netip.MustParseAddrPort("10.0.0.2:8080")
	for _, tt := range []struct {
		name     string
		dead     choosy
		cluster  string
		serving  int
		unserved Unserved
	}{
		{"one is dead", choosy{one}, "10.0.0.2:8080", 1, Served},
		{"all are dead", choosy{one, two}, "", 0, Reject},
	} {
		p := Planner{Choose: tt.dead}
		svc := service(func(s *state.Service) { s.Ports[0].Protocol = state.UDP })
		port := portOf(t, p.Plan(svc, []*state.Slice{udp(slice("a", "10.0.0.1", "10.0.0.2"))}, environment()), state.IPv4, "shop/web:http")
		equal(t, tt.name+": Cluster", show(port.Cluster), tt.cluster)
		equal(t, tt.name+": Serving", len(port.Serving), tt.serving)
		equal(t, tt.name+": Unserved", frontendOf(t, port, ClusterIP).Unserved, tt.unserved)
	}
}
