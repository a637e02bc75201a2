package endpointhealth

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

// TestWhoIsChecked: a Service that asks, or any one of a folder with the flag, except those of the cluster itself.
func TestWhoIsChecked(t *testing.T) {
	byDefault := &state.HealthCheck{Kind: state.CheckTCP, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}
	dns := state.Name{Namespace: "kube-system", Name: "dns"}
	for _, tt := range []struct {
		name   state.Name
		asked  *state.HealthCheck
		flag   *state.HealthCheck
		off    bool
		checks int
	}{
		{web, nil, nil, false, 0},
		{web, nil, byDefault, false, 2},
		{web, &state.HealthCheck{}, byDefault, false, 0}, // off
		{web, byDefault, nil, true, 0},
		{dns, nil, byDefault, false, 0},
		{dns, byDefault, nil, false, 2},
		{kubernetesService(), nil, byDefault, false, 0},
	} {
		w := newWorld(t, func(o *Options) {
			checksOnly(o)
			o.Default, o.Settings.ActiveChecks = tt.flag, !tt.off
		})
		w.serve(&state.Service{Name: tt.name, Check: tt.asked}, []netip.AddrPort{at(1), at(2)}, nil)
		if n, _ := w.checks.Counts(); n != tt.checks {
			t.Errorf("%s asks %v with the flag %v: %d checks, want %d", tt.name, tt.asked, tt.flag, n, tt.checks)
		}
		svc, list := w.Store.Service(tt.name)
		if problems := w.Set(svc, list, nil); (len(problems) > 0) != tt.off {
			t.Errorf("%s: problems %v", tt.name, problems)
		}
		w.Remove(tt.name)
		if n, _ := w.checks.Counts(); n > 0 || len(w.ledger.services) > 0 {
			t.Errorf("%s is gone, and %d checks stay", tt.name, n)
		}
	}
}

// TestTooManyChecks: a Service with more endpoints than one may have checked has a problem that says so.
func TestTooManyChecks(t *testing.T) {
	w := newWorld(t, checksOnly)
	choices := make([]plan.Choice, maxChecks/4+3)
	for i := range choices {
		choices[i] = plan.Choice{Protocol: state.TCP, At: target(i).At}
	}
	problems := w.Set(shop(func(*state.Service) {}), nil, choices)
	if len(problems) != 1 || !strings.HasPrefix(problems[0].Reason, "3 endpoints are not checked and count as good: this node makes no more checks") {
		t.Errorf("problems: %+v", problems)
	}
	if problems = w.Set(shop(func(*state.Service) {}), nil, choices[3:]); len(problems) != 0 {
		t.Errorf("problems of a smaller one: %+v", problems)
	}
}

// TestDetectionOff: nobody looks, and a Service that asks for more has a problem.
func TestDetectionOff(t *testing.T) {
	w := newWorld(t, checksOnly)
	for mode, problems := range map[state.OutlierMode]int{
		state.OutlierDefault: 0, state.OutlierOff: 0, state.OutlierObserve: 1, state.OutlierEject: 1,
	} {
		if list := w.Set(&state.Service{Name: web, Outliers: state.OutlierDetection{Mode: mode}}, nil, nil); len(list) != problems {
			t.Errorf("mode %d: %v", mode, list)
		}
	}
}

// TestWhoMayBeAsked: nobody has the node ask its own programs, an API server, a cluster IP, or the metadata of a cloud, by a
// check, a suspicion, or a first look. A folder of manifests belongs to one administrator, who may check this machine.
func TestWhoMayBeAsked(t *testing.T) {
	for _, tt := range []struct {
		endpoint        string
		api, fromFolder bool // may be asked
	}{
		{"10.0.1.1:80", true, true},
		{"192.0.2.10:10255", false, true},
		{"[2001:db8::10]:10255", false, true},
		{"10.1.1.1:6443", false, false},
		{"10.1.1.1:80", false, true},       // another port of an API server's machine
		{"203.0.114.1:10250", false, true}, // an address of the Node object that the host does not have
		{"10.1.1.2:6443", false, false},
		{"10.1.1.3:443", false, false},
		{"10.96.0.1:443", false, false},
		{"127.0.0.1:80", false, false},
		{"[::1]:80", false, false},
		{"169.254.169.254:80", false, false},
		{"[fe80::1]:80", false, false},
		{"168.63.129.16:80", false, false},
		{"[fd00:ec2::254]:80", false, false}, {"[fd20:ce::254]:80", false, false}, {"[fd00:c1::a9fe:a9fe]:80", false, false},
		{"[fd00:42::42]:80", false, false}, {"[fd00:a9fe:a9fe::1]:80", false, false}, {"[fd00:100::100:200]:80", false, false},
		{"224.0.0.1:80", false, false},
		{"0.0.0.0:80", false, false},
		{"203.0.113.1:80", false, false}, // the administrator's range
	} {
		for _, folder := range []bool{false, true} {
			asked := 0
			w := newWorld(t, func(o *Options) {
				if folder {
					o.Settings.Manifests = "/etc/verdict"
				}
				o.Settings.HealthCheckExclude = append(o.Settings.HealthCheckExclude, "203.0.113.0/24")
				o.APIServers = []netip.AddrPort{netip.MustParseAddrPort("10.1.1.2:6443")}
				o.Ask = func(context.Context, *probe.Question) probe.Answer { asked++; return probe.Answer{} }
			})
			w.Store.SetHostAddresses([]netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")})
			w.Store.SetServiceCIDRs([]netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")})
			w.Store.SetSlice(&state.Slice{
				Name: kubernetesService(), Service: kubernetesService(), Ports: []state.SlicePort{{Protocol: state.TCP, Port: 6443}},
				Endpoints: []state.Endpoint{{Addr: netip.MustParseAddr("10.1.1.1")}},
			}, nil)
			w.Store.SetNode(&state.Node{Name: "this", Addresses: []netip.Addr{netip.MustParseAddr("203.0.114.1")}}, nil)
			w.Store.AddServer(netip.MustParseAddrPort("10.1.1.3:443"))
			at := netip.MustParseAddrPort(tt.endpoint)
			svc := shop(func(s *state.Service) { s.Outliers.Mode = state.OutlierEject })
			problems := w.Set(svc, nil, []plan.Choice{{Protocol: state.TCP, At: at}})
			asks, _ := w.checks.Counts()
			looks := w.looks()
			suspicions := len(w.kernel.fresh([]Suspicion{{Endpoint: at, Packets: 1}}))
			may, want := asks+looks+suspicions, 0
			if folder && tt.fromFolder || !folder && tt.api {
				want = 3
			}
			if may != want || (len(problems) == 0) != (want == 3) {
				t.Errorf("%s, from a folder %t: %d checks, %d first looks, %d suspicions; problems %v", tt.endpoint, folder, asks, looks, suspicions, problems)
			}
			for _, p := range problems {
				if strings.Contains(p.Reason, "API") || strings.Contains(p.Reason, "own") {
					t.Errorf("%s: a tenant reads what the address is: %s", tt.endpoint, p.Reason)
				}
			}
			// An address may become the node's own after its check began. It counts as good then, as if it had been before.
			if a := w.asks(at); (asked == 1) != (want == 3) || !a.Good() {
				t.Errorf("%s: asked %d times, %+v", tt.endpoint, asked, a)
			}
		}
	}
}

// TestSiblings: the kernel notices one endpoint of a dead node. The others of that node are asked, and found dead as well.
func TestSiblings(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	pool := []netip.AddrPort{at(1), at(2), near(1), near(2), near(3)}
	w.serve(&state.Service{Name: web}, pool, nil)
	w.Store.SetSlice(&state.Slice{
		Name: state.Name{Namespace: web.Namespace, Name: "web-primary"}, Service: web, Family: state.IPv4, Weight: 1,
		Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}},
		Endpoints: []state.Endpoint{
			{Addr: at(1).Addr(), Ready: true, Node: "other"}, {Addr: at(2).Addr(), Ready: true, Node: "other"},
			{Addr: near(1).Addr(), Ready: true, Node: "this"}, {Addr: near(2).Addr(), Ready: true, Node: "this"},
			{Addr: near(3).Addr(), Ready: true, Node: "this"},
		},
	}, nil)
	w.wants("all are good", w.settle(web), pool...)
	w.answers[at(1)], w.answers[at(2)] = probe.NoAnswer, probe.NoAnswer
	w.suspectAt(at(1))
	w.walker.budget = threadtime.Bucket{}
	w.suspectSiblings()
	w.wants("the node is dead", w.settle(web), pool[2:]...)
}

// TestTenantLeavesRoomForSiblings: a tenant writes the name of a dead node into thousands of endpoints, and the endpoint of
// another namespace on this node is asked all the same.
func TestTenantLeavesRoomForSiblings(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	sl := &state.Slice{
		Name: state.Name{Namespace: "tenant", Name: "a"}, Service: state.Name{Namespace: "tenant", Name: "a"}, Family: state.IPv4,
		Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}, Weight: 1,
	}
	for i := range 5000 {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: addr, Ready: true, Node: "node-" + at(1).Addr().String()})
	}
	w.Store.SetService(&state.Service{Name: sl.Service}, nil)
	w.Store.SetSlice(sl, nil)
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1)}, nil)
	for range 20 { // slices have no order
		found := w.walker.endpointsOn(map[string]bool{"node-" + at(1).Addr().String(): true})
		if _, ok := found[at(1)]; !ok || len(found) != maxSiblings {
			t.Fatalf("%d endpoints are asked, want %d; that of another namespace: %t", len(found), maxSiblings, ok)
		}
	}
}

// newLooks is a Monitor that is told itself at whom to look.
func newLooks(t *testing.T) *world { return newWorld(t, func(*Options) {}) }

// look has the endpoints of a Service looked at.
func (w *world) look(name state.Name, targets []probe.Target, was []*checks.Check, now time.Time) []*checks.Check {
	list, _ := w.checks.Set(name, checks.Look, &state.HealthCheck{Interval: lookAgain}, targets, was, now)
	return list
}

// TestTenantLeavesTurnsForFirstLooks: a tenant has more endpoints than can be looked at in an hour. Those of another
// namespace are looked at all the same, and all are looked at in the end.
func TestTenantLeavesTurnsForFirstLooks(t *testing.T) {
	l, now := newLooks(t), time.Now()
	var many []probe.Target
	for i := range 10_000 {
		many = append(many, target(i))
	}
	tenant, own := state.Name{Namespace: "tenant", Name: "a"}, probe.Target{Protocol: state.TCP, At: at(1)}
	looks := l.look(tenant, many, nil, now)
	l.look(web, []probe.Target{own}, nil, now)
	first := l.checks.Due(now)
	if !slices.ContainsFunc(first, func(q checks.Question) bool { return q.Target == own }) || len(first) != looksAtOnce {
		t.Errorf("the first looks are at %v, want one at %s", first, at(1))
	}
	looked := 0
	for list := first; len(list) > 0; list = l.checks.Due(now) {
		looked += len(list)
		for _, q := range list {
			l.checks.Answered(q, probe.Answer{}, now)
		}
		now = now.Add(noticePeriod)
	}
	if looked != len(many)+1 {
		t.Errorf("%d endpoints are looked at, want %d", looked, len(many)+1)
	}
	for range 10 { // endpoints come and go
		l.look(tenant, nil, looks, now)
		looks = l.look(tenant, many, nil, now)
	}
	if n := l.looks(); n > len(many)+1 {
		t.Errorf("%d endpoints wait, and there are %d", n, len(many)+1)
	}
}
