package proxier

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// outlierServices share a dead endpoint and differ in who they are and in what they ask for.
var outlierServices = []struct {
	name   state.Name
	asked  state.OutlierDetection
	ejects bool
}{
	{state.Name{Namespace: "shop", Name: "web"}, state.OutlierDetection{}, true},
	{state.Name{Namespace: "shop", Name: "observes"}, state.OutlierDetection{Mode: state.OutlierObserve}, false},
	{state.Name{Namespace: "shop", Name: "off"}, state.OutlierDetection{Mode: state.OutlierOff}, false},
	{state.Name{Namespace: "kube-system", Name: "dns"}, state.OutlierDetection{}, false},
	{state.Name{Namespace: "kube-system", Name: "asks"}, state.OutlierDetection{Mode: state.OutlierEject, Refusals: true}, true},
	{kubernetesService(), state.OutlierDetection{}, false},
}

var (
	deadEndpoint = netip.MustParseAddrPort("10.0.2.1:8080")
	goodEndpoint = netip.MustParseAddrPort("10.0.1.1:8080")
)

// outlierRig has the Services in a store, and Outliers for which the dead endpoint answered once and never again.
type outlierRig struct {
	*Outliers
	store   *state.Store
	reports chan OutlierReport
	deleted chan []conntrack.Unanswered
}

func newOutlierRig(t *testing.T, change func(*config.Settings)) *outlierRig {
	t.Helper()
	r := &outlierRig{store: state.NewStore(), reports: make(chan OutlierReport, 100), deleted: make(chan []conntrack.Unanswered, 1)}
	for _, is := range outlierServices {
		r.store.SetService(&state.Service{Name: is.name, Outliers: is.asked, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}, nil)
		r.store.SetSlice(&state.Slice{
			Name: state.Name{Namespace: is.name.Namespace, Name: is.name.Name + "-x"}, Service: is.name, Family: state.IPv4,
			Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}, Weight: 1,
			Endpoints: []state.Endpoint{
				{Addr: goodEndpoint.Addr(), Ready: true, Node: "this"}, {Addr: deadEndpoint.Addr(), Ready: true, Node: "other"},
			},
		}, nil)
	}
	s := config.Default()
	s.NodeName, s.OutlierDetection = "this", config.OutlierEject
	change(&s)
	var asked bool // the first question is the first look
	r.Outliers = NewOutliers(OutlierOptions{
		Settings: &s, Store: r.store, Log: slog.New(slog.DiscardHandler),
		Suspicions: func(bool) ([]Suspicion, error) { return []Suspicion{{Endpoint: deadEndpoint, Packets: 1}}, nil },
		Ask: func(_ context.Context, at netip.AddrPort) outlier.Answer {
			r.mu.Lock()
			defer r.mu.Unlock()
			if at == deadEndpoint && asked {
				return outlier.Silent
			}
			asked = asked || at == deadEndpoint
			return outlier.Good
		},
		Delete: func(list []conntrack.Unanswered, _ []netip.Addr) (int, error) { r.deleted <- list; return 1, nil },
		Report: func(o OutlierReport) { r.reports <- o },
	})
	return r
}

// plan does what a pass does with a Service, and returns its pool.
func (r *outlierRig) plan(name state.Name) (pool []netip.AddrPort) {
	svc, list := r.store.Service(name)
	r.begin(svc, list)
	for _, e := range r.Choose(svc, state.TCP, []plan.Endpoint{{Addr: goodEndpoint}, {Addr: deadEndpoint}}) {
		pool = append(pool, e.Addr)
	}
	r.set(name, &plan.Service{Name: name, Outliers: svc.Outliers, Ports: []plan.Port{
		{Family: state.IPv4, Protocol: state.TCP, Frontends: []plan.Frontend{{Addr: svc.ClusterIPs[0], Port: 80}}},
	}})
	return pool
}

// TestOutlierModes: an endpoint leaves the pools of the Services that eject, and no others. Its connections from their
// frontends are deleted.
func TestOutlierModes(t *testing.T) {
	r := newOutlierRig(t, func(*config.Settings) {})
	for _, is := range outlierServices {
		if pool := r.plan(is.name); len(pool) != 2 {
			t.Errorf("%s has %v, and nothing is wrong yet", is.name, pool)
		}
	}
	r.lookFirst(t.Context())
	r.take(<-r.answers)
	r.take(<-r.answers) // both endpoints answered the first look
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = r.Run(ctx) }() // returns nil
	for end := time.Now().Add(30 * time.Second); len(r.plan(outlierServices[0].name)) == 2; {
		select {
		case <-r.wake():
		case <-time.After(time.Until(end)):
			t.Fatal("nothing is ejected")
		}
	}
	for _, is := range outlierServices {
		want := []netip.AddrPort{goodEndpoint, deadEndpoint}
		if is.ejects {
			want = want[:1]
		}
		if pool := r.plan(is.name); !slices.Equal(pool, want) {
			t.Errorf("%s has %v, want %v", is.name, pool, want)
		}
	}
	r.applied(nil)
	if list := <-r.deleted; len(list) != 2 || list[0].Endpoint != deadEndpoint || list[0].Frontends[0].Port != 80 {
		t.Errorf("connections are deleted: %+v; wanted those of two Services", list)
	}
	if !r.refusals {
		t.Error("a Service asked for refusals, and nobody looks for them")
	}
	if list := r.Statuses(); len(list) != 1 || len(list[0].Ejected) != 2 {
		t.Errorf("status: %+v", list)
	}
}

// TestStillReadyIsTold: the Event comes once in an episode, after the one that began it, and again in the next episode.
func TestStillReadyIsTold(t *testing.T) {
	r := newOutlierRig(t, func(*config.Settings) {})
	status := outlier.Status{
		Endpoint: deadEndpoint, Node: "other", State: outlier.StateFailed, Answer: outlier.Silent, StillReady: true,
		Services: []state.Name{outlierServices[0].name},
	}
	hear := func(kind outlier.Kind, failed ...outlier.Status) (list []Episode) {
		report := OutlierReport{Notes: []outlier.Note{{Kind: kind, Status: status}}, Statuses: failed}
		r.write(&report)
		return report.Episodes
	}
	for range 2 {
		if list := hear(outlier.Failed, status); len(list) != 1 || list[0].Reason != reasonNotAnswering {
			t.Errorf("at the beginning: %+v", list)
		}
		want := "endpoint 10.0.2.1:8080 on node other does not accept connections (silent); it gets no new connections as far as " +
			"--max-ejected allows, until it answers again; its slice still calls it ready: perhaps only this node cannot reach it"
		if list := hear(outlier.StillReady, status); len(list) != 1 || list[0].Reason != reasonStillReady || list[0].Text != want {
			t.Errorf("after a minute: %+v, want %s", list, want)
		}
		if list := slices.Concat(hear(outlier.StillReady, status), hear(outlier.Failed, status)); len(list) != 0 {
			t.Errorf("in the same episode: %+v", list)
		}
		hear(outlier.Recovered)
	}
}

// TestOutliersOff: nobody looks, and a Service that asks for more has a problem.
func TestOutliersOff(t *testing.T) {
	r := newOutlierRig(t, func(s *config.Settings) { s.OutlierDetection = config.OutlierOff })
	if r.detects() {
		t.Error("somebody looks")
	}
	for _, is := range outlierServices {
		problems := offProblem(true, &plan.Service{Name: is.name, Outliers: is.asked})
		if asks := is.asked.Mode > state.OutlierOff; (len(problems) > 0) != asks {
			t.Errorf("%s: %v", is.name, problems)
		}
	}
}
