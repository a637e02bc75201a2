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

// TestHoldsRefusals: TCP frontends of a Service that ejects with refusals hold them back, if a pool that they use has
// several endpoints, whether they are good or not.
func TestHoldsRefusals(t *testing.T) {
	eject := state.OutlierDetection{Mode: state.OutlierEject, Refusals: true}
	two := []string{"10.0.0.1 @node-a", "10.0.0.2"}
	dead := choosy{netip.MustParseAddrPort("10.0.0.1:8080")}
	for _, tt := range []struct {
		name              string
		asked             state.OutlierDetection
		endpoints         []string
		edit              func(*state.Service)
		cluster, nodePort bool
	}{
		{"two endpoints", eject, two, func(*state.Service) {}, true, true},
		{"one endpoint", eject, two[:1], func(*state.Service) {}, false, false},
		{"without refusals", state.OutlierDetection{Mode: state.OutlierEject}, two, func(*state.Service) {}, false, false},
		{"only observed", state.OutlierDetection{Mode: state.OutlierObserve, Refusals: true}, two, func(*state.Service) {}, false, false},
		{"UDP", eject, two, func(s *state.Service) { s.Ports[0].Protocol = state.UDP }, false, false},
		{"internal policy Local", eject, two, func(s *state.Service) { s.InternalLocal = true }, false, true},
		{"external policy Local, for pods", eject, two, func(s *state.Service) { s.ExternalLocal = true }, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc := service(func(s *state.Service) { s.Outliers, s.Ports[0].NodePort = tt.asked, 30080; tt.edit(s) })
			sl := slice("a", tt.endpoints...)
			sl.Ports[0].Protocol = svc.Ports[0].Protocol
			p := Planner{Choose: dead}
			plan := p.Plan(svc, []*state.Slice{sl}, environment())
			fes := portOf(t, plan, state.IPv4, "shop/web:http").Frontends
			if fes[0].HoldsRefusals != tt.cluster || fes[1].HoldsRefusals != tt.nodePort {
				t.Errorf("%s: %t, %s: %t", fes[0].Kind, fes[0].HoldsRefusals, fes[1].Kind, fes[1].HoldsRefusals)
			}
		})
	}
}
