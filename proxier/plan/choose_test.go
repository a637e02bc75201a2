package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func ofBackups(sl *state.Slice) *state.Slice { sl.Backup = true; return sl }

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
		list := []*state.Slice{slice("a", tt.primary...), ofBackups(slice("b", "10.0.0.8 @node-a", "10.0.0.9"))}
		p := portOf(t, planned(svc, list, environment()), state.IPv4, "shop/web:http")
		equal(t, tt.name+": Cluster", show(p.Cluster), tt.cluster)
		equal(t, tt.name+": Local", show(p.Local), tt.local)
	}
}

func failure(at string, sure bool, since int) state.Failure {
	return state.Failure{Protocol: state.TCP, At: netip.MustParseAddrPort(at + ":8080"), Sure: sure, Since: time.Unix(int64(since), 0)}
}

// fails returns the health of a Service of which some endpoints have failed, in this order.
func fails(sure bool, addrs ...string) (h state.Health) {
	for i, a := range addrs {
		h = append(h, failure(a, sure, i))
	}
	slices.SortFunc(h, state.Failure.Compare)
	return h
}

// TestHealthComesBeforeTopology: a good endpoint far away comes before a bad one nearby, and before a backup; when none is
// good, on-all-down decides about the endpoints that get connections when all are good.
func TestHealthComesBeforeTopology(t *testing.T) {
	zones := slice("a", "10.0.0.1 @node-a zone=zone-1", "10.0.0.2 zone=zone-2", "10.0.0.3 zone=zone-2")
	nodes := slice("a", "10.0.0.1 @node-a node=node-a zone=zone-1", "10.0.0.2 node=node-b zone=zone-1", "10.0.0.3 node=node-c zone=zone-2")
	spare := ofBackups(slice("b", "10.0.0.8 @node-a zone=zone-1", "10.0.0.9 zone=zone-2"))
	plain := slice("a", "10.0.0.1 @node-a", "10.0.0.2 draining", "10.0.0.3 @node-a draining")
	for _, tt := range []struct {
		name           string
		slices         []*state.Slice
		failed         []string
		allDown        state.AllDown
		cluster, local string
		unserved       serviceport.Refusal
		localGood      int
		good, goodHere bool
	}{
		{"all good", []*state.Slice{zones}, nil, state.KeepAll, "1", "1", serviceport.NoRefusal, 1, true, true},
		{"near one fails", []*state.Slice{zones}, []string{"1"}, state.KeepAll, "2 3", "1", serviceport.NoRefusal, 0, true, false},
		{"near one fails, reject", []*state.Slice{zones}, []string{"1"}, state.RefuseAll, "2 3", "", serviceport.Drop, 0, true, false},
		{"the node fails, the zone is good", []*state.Slice{nodes}, []string{"1"}, state.RefuseAll, "2", "", serviceport.Drop, 0, true, false},
		{"node and zone fail", []*state.Slice{nodes}, []string{"1", "2"}, state.RefuseAll, "3", "", serviceport.Drop, 0, true, false},
		{"a good primary far away, and a failing backup nearby", []*state.Slice{zones, spare}, []string{"1", "8"}, state.KeepAll, "2 3", "1", serviceport.NoRefusal, 0, true, false},
		{"primaries fail, the near backup is good", []*state.Slice{zones, spare}, []string{"1", "2", "3"}, state.KeepAll, "8", "8", serviceport.NoRefusal, 1, true, true},
		{"only the far backup is good", []*state.Slice{zones, spare}, []string{"1", "2", "3", "8"}, state.RefuseAll, "9", "", serviceport.Drop, 0, true, false},
		{"all fail, keep", []*state.Slice{zones, spare}, []string{"1", "2", "3", "8", "9"}, state.KeepAll, "1", "1", serviceport.NoRefusal, 0, false, false},
		{"all fail, backup", []*state.Slice{zones, spare}, []string{"1", "2", "3", "8", "9"}, state.BackupOnly, "8", "8", serviceport.NoRefusal, 0, false, false},
		{"all fail, reject", []*state.Slice{zones, spare}, []string{"1", "2", "3", "8", "9"}, state.RefuseAll, "", "", serviceport.Reject, 0, false, false},
		{"a good one that drains comes before a bad one", []*state.Slice{plain}, []string{"1"}, state.KeepAll, "2 3", "3", serviceport.NoRefusal, 0, true, true},
		{"all fail, those that drain, too, backup", []*state.Slice{slice("a", "10.0.0.1 draining"), ofBackups(slice("b", "10.0.0.8 gone", "10.0.0.9 draining"))},
			[]string{"1", "8", "9"}, state.BackupOnly, "9", "", serviceport.Drop, 0, false, false},
		{"all fail, those that drain, too, and there is no backup", []*state.Slice{slice("a", "10.0.0.1 draining", "10.0.0.2 gone")},
			[]string{"1", "2"}, state.BackupOnly, "1", "", serviceport.Drop, 0, false, false},
		{"none is ready, and those fail", []*state.Slice{slice("a", "10.0.0.1 gone")}, []string{"1"}, state.KeepAll, "", "", serviceport.Reject, 0, false, false},
		{"all fail, those that drain, too", []*state.Slice{plain}, []string{"1", "2", "3"}, state.KeepAll, "1", "1", serviceport.NoRefusal, 0, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc := service(func(s *state.Service) {
				s.Ports[0].NodePort, s.ExternalLocal, s.AllDown, s.HealthCheckNodePort = 30080, true, tt.allDown, 31000
			})
			var failed []string
			for _, n := range tt.failed {
				failed = append(failed, "10.0.0."+n)
			}
			p := Planner{Health: fails(true, failed...)}
			is := p.Plan(svc, tt.slices, environment())
			port := portOf(t, is, state.IPv4, "shop/web:http")
			numbers := func(pool []serviceport.Endpoint) string {
				return strings.NewReplacer("10.0.0.", "", ":8080", "").Replace(show(pool))
			}
			equal(t, "Cluster", numbers(port.Cluster), tt.cluster)
			equal(t, "Local", numbers(port.Local), tt.local)
			equal(t, "Refusal of the node port", frontendOf(t, port, NodePort).Refusal, tt.unserved)
			equal(t, "the cluster IP is good", frontendOf(t, port, ClusterIP).Good, tt.good)
			equal(t, "the node port is good", frontendOf(t, port, NodePort).Good, tt.goodHere)
			down := !tt.good && tt.name != "none is ready, and those fail"
			equal(t, "an outage", port.Down, down)
			equal(t, "a Problem", slices.ContainsFunc(is.Problems, func(p state.Problem) bool { return p.Field == state.FieldEndpoints }), down)
			equal(t, "good local endpoints", is.HealthCheck.LocalIPv4, tt.localGood)
		})
	}
}

// TestShare: no more than a share of a pool is left out because it is silent, those that failed first. What is surely bad
// has no share.
func TestShare(t *testing.T) {
	pool := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}
	for _, tt := range []struct {
		name    string
		health  state.Health
		backups int
		want    string
	}{
		{"one is silent", fails(false, pool[3]), 0, "10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080"},
		{"three are silent", fails(false, pool[3], pool[2], pool[0]), 0, "10.0.0.1:8080 10.0.0.2:8080"},
		{"three are surely bad", fails(true, pool[3], pool[2], pool[0]), 0, "10.0.0.2:8080"},
		{"two are surely bad, one is silent", slices.Concat(fails(true, pool[:2]...), fails(false, pool[2])), 0, "10.0.0.4:8080"},
		{"all are silent", fails(false, pool...), 0, "10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080 10.0.0.4:8080"},
		{"all are silent, and a backup is good", fails(false, pool...), 1, "10.0.0.9:8080"},
		{"two are surely bad, two silent, and a backup is good", slices.Concat(fails(true, pool[:2]...), fails(false, pool[2:]...)), 1, "10.0.0.9:8080"},
	} {
		list := []*state.Slice{slice("a", pool...)}
		if tt.backups > 0 {
			list = append(list, ofBackups(slice("b", "10.0.0.9")))
		}
		p := Planner{Health: tt.health, MaxEjected: 50}
		equal(t, tt.name, show(portOf(t, p.Plan(service(func(*state.Service) {}), list, environment()), state.IPv4, "shop/web:http").Cluster), tt.want)
	}
}

// TestNoShare: with --max-ejected=0, silence changes nothing, also if all endpoints are silent. Bad answers count.
func TestNoShare(t *testing.T) {
	pool := []string{"10.0.0.1", "10.0.0.2"}
	const all = "10.0.0.1:8080 10.0.0.2:8080"
	for _, allDown := range []state.AllDown{state.KeepAll, state.RefuseAll, state.BackupOnly} {
		for want, health := range map[string]state.Health{
			all: fails(false, pool...), "10.0.0.2:8080": slices.Concat(fails(true, pool[0]), fails(false, pool[1])),
		} {
			svc := service(func(s *state.Service) { s.AllDown = allDown })
			p, list := Planner{Health: health}, []*state.Slice{slice("a", pool...), ofBackups(slice("b", "10.0.0.9"))}
			equal(t, allDown.String(), show(portOf(t, p.Plan(svc, list, environment()), state.IPv4, "shop/web:http").Cluster), want)
		}
	}
}

// TestChoices: a plan tells what became of each endpoint.
func TestChoices(t *testing.T) {
	p := Planner{Health: slices.Concat(fails(true, "10.0.0.1"), fails(false, "10.0.0.2", "10.0.0.3")), MaxEjected: 50}
	p.Health[0].Accepts = true
	list := []*state.Slice{slice("a", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5 gone"), ofBackups(slice("b", "10.0.0.9"))}
	var got []string
	for _, c := range p.Plan(service(func(*state.Service) {}), list, environment()).Choices {
		got = append(got, fmt.Sprint(c.At.Addr(), " ", c.Use, " ", c.Backup, " ", c.Accepts))
	}
	want := []string{
		fmt.Sprint("10.0.0.1 ", Ejected, " false true"), fmt.Sprint("10.0.0.2 ", Ejected, " false false"), fmt.Sprint("10.0.0.3 ", KeptShare, " false false"),
		fmt.Sprint("10.0.0.4 ", InUse, " false false"), fmt.Sprint("10.0.0.9 ", Idle, " true false"),
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	p = Planner{}
	if c := p.Plan(service(func(*state.Service) {}), list[:1], environment()).Choices; c != nil {
		t.Errorf("nobody watches, and the plan has %v", c)
	}
	p.Watched = true
	if c := p.Plan(service(func(*state.Service) {}), list[:1], environment()).Choices; len(c) != 4 {
		t.Errorf("somebody watches, and the plan has %v", c)
	}
}

// TestFlowsLeaveFailedEndpoints: frontends without a good endpoint refuse, and UDP flows leave failed endpoints.
func TestFlowsLeaveFailedEndpoints(t *testing.T) {
	for _, tt := range []struct {
		name     string
		failed   []string
		cluster  string
		serving  int
		unserved serviceport.Refusal
	}{
		{"one has failed", []string{"10.0.0.1"}, "10.0.0.2:8080", 1, serviceport.NoRefusal},
		{"all have failed", []string{"10.0.0.1", "10.0.0.2"}, "", 0, serviceport.Reject},
	} {
		h := fails(true, tt.failed...)
		for i := range h {
			h[i].Protocol = state.UDP
		}
		p := Planner{Health: h}
		svc := service(func(s *state.Service) { s.Ports[0].Protocol, s.AllDown = state.UDP, state.RefuseAll })
		port := portOf(t, p.Plan(svc, []*state.Slice{udp(slice("a", "10.0.0.1", "10.0.0.2"))}, environment()), state.IPv4, "shop/web:http")
		equal(t, tt.name+": Cluster", show(port.Cluster), tt.cluster)
		equal(t, tt.name+": Serving", len(port.Serving), tt.serving)
		equal(t, tt.name+": Refusal", frontendOf(t, port, ClusterIP).Refusal, tt.unserved)
	}
}

// TestHoldsRefusals: TCP frontends of a Service that ejects with refusals hold them back, if a pool that they use has
// several endpoints, whether they are good or not.
func TestHoldsRefusals(t *testing.T) {
	eject := state.OutlierDetection{Mode: state.OutlierEject, Refusals: true}
	two := []string{"10.0.0.1 @node-a", "10.0.0.2"}
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
		{"internal policy Local, two endpoints here", eject, []string{"10.0.0.1 @node-a", "10.0.0.2 @node-a"},
			func(s *state.Service) { s.InternalLocal = true }, true, true},
		{"external policy Local, for pods", eject, two, func(s *state.Service) { s.ExternalLocal = true }, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svc := service(func(s *state.Service) { s.Outliers, s.Ports[0].NodePort = tt.asked, 30080; tt.edit(s) })
			sl := slice("a", tt.endpoints...)
			sl.Ports[0].Protocol = svc.Ports[0].Protocol
			p := Planner{Health: fails(true, "10.0.0.1")}
			plan := p.Plan(svc, []*state.Slice{sl}, environment())
			fes := portOf(t, plan, state.IPv4, "shop/web:http").Frontends
			if fes[0].HoldsRefusals != tt.cluster || fes[1].HoldsRefusals != tt.nodePort {
				t.Errorf("%s: %t, %s: %t", fes[0].Kind, fes[0].HoldsRefusals, fes[1].Kind, fes[1].HoldsRefusals)
			}
		})
	}
}

// TestShareOfFew: one of two may be left out, and never the only one.
func TestShareOfFew(t *testing.T) {
	for _, tt := range [][3]int{{0, 50, 0}, {1, 50, 0}, {2, 50, 1}, {2, 100, 1}, {3, 10, 1}, {10, 50, 5}, {10, 100, 9}} {
		if got := share(tt[0], tt[1]); got != tt[2] {
			t.Errorf("%d %% of %d: %d, want %d", tt[1], tt[0], got, tt[2])
		}
	}
}

// TestPreferred: of two endpoints with one address and port, the one that can serve more wins.
func TestPreferred(t *testing.T) {
	order := []flags{ready, draining, flowing, 0}
	for i, a := range order {
		for j, b := range order {
			if got := preferred(a, b); got != (i < j) {
				t.Errorf("%b wins over %b: %t", a, b, got)
			}
			if !preferred(a, b|terminating) || preferred(a|terminating, b) {
				t.Errorf("%b, and %b of a Pod that is terminating", a, b)
			}
		}
	}
}
