package endpointhealth

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// world is a Monitor with a store and a planner, which a test drives.
type world struct {
	*Monitor
	t       *testing.T
	planner plan.Planner
	reports []Report
	answers map[netip.AddrPort]probe.Fault // of those that are not good
	memory  []Remembered
	now     time.Time
}

func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := &world{t: t, now: time.Now(), planner: plan.Planner{MaxEjected: 50}, answers: map[netip.AddrPort]probe.Fault{}}
	s := config.Default()
	s.NodeName, s.OutlierDetection = "this", config.OutlierEject
	o := Options{
		Settings: &s, Store: state.NewStore(), Log: slog.New(slog.DiscardHandler), Report: func(r Report) { w.reports = append(w.reports, r) },
		MayWrite: func(string, time.Time) bool { return true }, Cost: func(state.CheckKind) time.Duration { return 0 },
		Ask:        func(_ context.Context, q *probe.Question) probe.Answer { return w.answerOf(q.At) },
		Suspicions: func(bool) ([]Suspicion, error) { return nil, nil },
	}
	change(&o)
	w.Monitor = New(o)
	return w
}

func (w *world) answerOf(at netip.AddrPort) probe.Answer {
	f := w.answers[at]
	return probe.Answer{Fault: f, Connected: f != probe.NoAnswer && f != probe.NoRoute, Why: "HTTP status 500"}
}

// serve writes a Service, and a slice of endpoints on one node each: "this", or one of their own.
func (w *world) serve(svc *state.Service, primaries, backups []netip.AddrPort) {
	svc.ClusterIPs = []netip.Addr{netip.MustParseAddr("10.96.0.1")}
	svc.Ports = []state.ServicePort{{Protocol: state.TCP, Port: 80}}
	w.Store.SetService(svc, nil)
	for i, list := range [][]netip.AddrPort{primaries, backups} {
		sl := &state.Slice{
			Name:    state.Name{Namespace: svc.Namespace, Name: svc.Name.Name + []string{"-primary", "-backup"}[i]},
			Service: svc.Name, Family: state.IPv4, Weight: 1, Backup: i == 1,
			Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}},
		}
		for _, at := range list {
			node := "node-" + at.Addr().String()
			if at.Addr().As4()[2] == thisNode {
				node = "this"
			}
			sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: at.Addr(), Ready: true, Node: node})
		}
		if len(list) > 0 {
			w.Store.SetSlice(sl, nil)
		}
	}
	w.plan(svc.Name)
}

// thisNode is the third byte of the address of endpoints on this node.
const thisNode = 9

// at is endpoint i on another node, and near one on this node.
func at(i byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, i}), 8080)
}

func near(i byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, thisNode, i}), 8080)
}

// plan does what a pass does with a Service, and returns its pool.
func (w *world) plan(name state.Name) (pool []netip.AddrPort) {
	svc, list := w.Store.Service(name)
	w.planner.Health, w.planner.Watched = w.Store.Health(name), w.Watches(svc)
	is := w.planner.Plan(svc, list, &plan.Environment{NodeName: "this", IPv4: true})
	w.Set(svc, list, is.Choices)
	for _, e := range is.Ports[0].Cluster {
		pool = append(pool, e.Addr)
	}
	return pool
}

// settle asks and plans until nothing changes any more.
func (w *world) settle(name state.Name) []netip.AddrPort {
	for range 20 {
		w.now = w.now.Add(time.Minute)
		now := w.now
		w.mu.Lock()
		questions, inquiries, looks := w.checks.Due(now), w.suspects.Due(now), w.looks.Due(now)
		w.mu.Unlock()
		for _, q := range questions {
			w.checked(q, w.answerOf(q.At))
		}
		for _, q := range looks {
			w.looked(q, w.answerOf(q.At))
		}
		for _, q := range inquiries {
			if q.Witnesses {
				w.witnessed(suspicion.SomeAnswer)
			} else {
				w.inquired(q, w.answerOf(q.At))
			}
		}
		w.publish(now)
		w.plan(name)
		w.publish(now)
		w.tell()
	}
	return w.plan(name)
}

// asks asks an endpoint.
func (w *world) asks(at netip.AddrPort) (answer probe.Answer) {
	go w.asker.one(w.t.Context(), suspected(at), func(a probe.Answer) { answer = a })
	(<-w.asker.ends)()
	return answer
}

// flip has an endpoint fail its check, or pass it.
func (w *world) flip(name state.Name, t probe.Target, now time.Time) {
	is := w.ledger.of(name)
	i, _ := find(is.choices, t.Protocol, t.At)
	k := is.checks[i]
	k.Reached, k.Down, k.Since = true, !k.Down, now
	w.ledger.touch(name)
}

func (w *world) wants(what string, got []netip.AddrPort, want ...netip.AddrPort) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: %v get connections, want %v", what, got, want)
	}
}

// suspectAt has the kernel notice endpoints.
func (w *world) suspectAt(list ...netip.AddrPort) {
	var suspicions []Suspicion
	for _, at := range list {
		suspicions = append(suspicions, Suspicion{Endpoint: at, Packets: 1})
	}
	w.walker.budget = schedule.Bucket{}
	w.suspect(w.kernel.fresh(suspicions))
}

func shop(change func(*state.Service)) *state.Service {
	svc := &state.Service{Name: web, Check: &state.HealthCheck{
		Kind: state.CheckTCP, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1,
	}}
	change(svc)
	return svc
}

func checksOnly(o *Options) { o.Settings.OutlierDetection = config.OutlierOff }

// TestModes: an endpoint leaves the pools of the Services that eject, and no others.
func TestModes(t *testing.T) {
	for _, tt := range []struct {
		name     state.Name
		asked    state.OutlierDetection
		ejects   bool
		refusals bool
	}{
		{web, state.OutlierDetection{}, true, false},
		{web, state.OutlierDetection{Mode: state.OutlierObserve}, false, false},
		{web, state.OutlierDetection{Mode: state.OutlierOff}, false, false},
		{state.Name{Namespace: "kube-system", Name: "dns"}, state.OutlierDetection{}, false, false},
		{state.Name{Namespace: "kube-system", Name: "asks"}, state.OutlierDetection{Mode: state.OutlierEject, Refusals: true}, true, true},
		{kubernetesService(), state.OutlierDetection{}, false, false},
	} {
		w := newWorld(t, func(*Options) {})
		w.serve(&state.Service{Name: tt.name, Outliers: tt.asked}, []netip.AddrPort{at(1), at(2), near(1)}, nil)
		w.wants("at the beginning", w.settle(tt.name), at(1), at(2), near(1))
		w.answers[at(1)] = probe.NoAnswer
		w.suspectAt(at(1))
		want := []netip.AddrPort{at(1), at(2), near(1)}
		if tt.ejects {
			want = want[1:]
		}
		w.wants(tt.name.String(), w.settle(tt.name), want...)
		ejected := 0
		for _, s := range w.Statuses() {
			if s.Ejected {
				ejected++
			}
		}
		if ejected > 0 != tt.ejects || w.kernel.refusals.Load() != tt.refusals {
			t.Errorf("%s %v: ejected %d times, refusals count: %t", tt.name, tt.asked, ejected, w.kernel.refusals.Load())
		}
		delete(w.answers, at(1))
		w.wants("when it answers again", w.settle(tt.name), at(1), at(2), near(1))
		w.Remove(tt.name)
		if looks, _ := w.looks.Counts(); len(w.ledger.services)+looks+len(w.suspects.Records(state.Name{})) > 0 {
			t.Errorf("%s is gone, and something stays", tt.name)
		}
	}
}

// TestChecksChoose has two primary and two backup endpoints, of which some fail.
func TestChecksChoose(t *testing.T) {
	const last = "no endpoint is good, and on-all-down is "
	for _, tt := range []struct {
		name    string
		allDown state.AllDown
		bad     []byte
		want    []byte
		backup  string // what is told of the first backup
	}{
		{"all pass", state.KeepAll, nil, []byte{0, 1}, "backup, not used: another endpoint is good"},
		{"one fails", state.KeepAll, []byte{0}, []byte{1}, "backup, not used: another endpoint is good"},
		{"the primaries fail", state.KeepAll, []byte{0, 1}, []byte{2, 3}, "backup, in use: no other endpoint is good"},
		{"one backup passes", state.RefuseAll, []byte{0, 1, 2}, []byte{3}, "backup, not used: it is bad itself"},
		{"all fail, keep", state.KeepAll, []byte{0, 1, 2, 3}, []byte{0, 1}, "backup, not used: " + last + "keep"},
		{"all fail, reject", state.RefuseAll, []byte{0, 1, 2, 3}, nil, "backup, not used: " + last + "reject"},
		{"all fail, backup", state.BackupOnly, []byte{0, 1, 2, 3}, []byte{2, 3}, "backup, in use: no other endpoint is good"},
	} {
		w := newWorld(t, checksOnly)
		w.serve(shop(func(s *state.Service) { s.AllDown = tt.allDown }), []netip.AddrPort{at(0), at(1)}, []netip.AddrPort{at(2), at(3)})
		for _, i := range tt.bad {
			w.answers[at(i)] = probe.Refused
		}
		got := w.settle(web)
		var want []netip.AddrPort
		for _, i := range tt.want {
			want = append(want, at(i))
		}
		w.wants(tt.name, got, want...)
		failing := 0
		for _, s := range w.StatusesOf(web) {
			if s.State == StateFailing {
				failing++
				if kept := slices.Contains(got, s.At); kept != (s.Hold == suspicion.NobodyGood) {
					t.Errorf("%s: %s gets connections: %t, and is held because %q", tt.name, s.At, kept, s.Hold)
				}
			} else if is := s.State.String() + ": " + s.Why; s.At == at(2) && is != tt.backup {
				t.Errorf("%s: %q, want %q", tt.name, is, tt.backup)
			}
		}
		if failing != len(tt.bad) {
			t.Errorf("%s: %d endpoints fail, want %d", tt.name, failing, len(tt.bad))
		}
	}
}

// TestPolicyKeepsNodeAway: a network policy lets this node ask only its own pods. The silence of the others is not held
// against them: traffic does not become local only. As soon as one of them has answered, silence counts.
func TestPolicyKeepsNodeAway(t *testing.T) {
	w := newWorld(t, checksOnly)
	pool := []netip.AddrPort{at(1), at(2), at(3), near(1), near(2)}
	for _, a := range pool[:3] {
		w.answers[a] = probe.NoAnswer
	}
	w.serve(shop(func(*state.Service) {}), pool, nil)
	w.wants("nobody far away has ever answered", w.settle(web), pool...)
	w.answers[near(1)] = probe.NoAnswer
	w.wants("an endpoint on this node is silent", w.settle(web), at(1), at(2), at(3), near(2))
	delete(w.answers, at(3))
	w.wants("one has answered", w.settle(web), at(3), near(2))
	w.answers[at(3)] = probe.NoAnswer // the policy came back: no more than a share of the pool is left out
	w.wants("nobody far away answers any more", w.settle(web), at(3), near(2))
}

// TestBackupsInUse: a backup endpoint is in use since the first plan that uses it, and a Service counts while it is on
// backups.
func TestBackupsInUse(t *testing.T) {
	w := newWorld(t, checksOnly)
	w.serve(shop(func(*state.Service) {}), []netip.AddrPort{at(0)}, []netip.AddrPort{at(1)})
	w.answers[at(0)] = probe.Refused
	w.wants("the primary fails", w.settle(web), at(1))
	first := w.StatusesOf(web)
	if last := first[len(first)-1]; last.State != StateBackupInUse || last.Since.IsZero() || w.report.OnBackups != 1 {
		t.Fatalf("%+v, %d Services are on backups", last, w.report.OnBackups)
	}
	w.settle(web)
	if again := w.StatusesOf(web); again[1].Since != first[1].Since {
		t.Errorf("in use since %s, and before since %s", again[1].Since, first[1].Since)
	}
	delete(w.answers, at(0))
	if w.settle(web); w.report.OnBackups != 0 {
		t.Error("the primary endpoint is good, and the Service counts as on backups")
	}
	w.answers[at(0)] = probe.Refused
	w.settle(web)
	w.reports = nil
	w.Remove(web)
	w.tell()
	if len(w.reports) != 1 || w.reports[0].OnBackups != 0 {
		t.Errorf("reports when the Service is gone: %+v", w.reports)
	}
}

// TestBothMustBeGood: an endpoint that does not answer clients and fails its check gets connections when both are over.
func TestBothMustBeGood(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	w.serve(shop(func(s *state.Service) { s.Check.Port = 9000 }), []netip.AddrPort{at(1), at(2), at(3)}, nil)
	w.wants("all are good", w.settle(web), at(1), at(2), at(3))
	checked := netip.AddrPortFrom(at(1).Addr(), 9000)
	w.answers[at(1)], w.answers[checked] = probe.Refused, probe.Refused
	w.suspectAt(at(1))
	w.wants("both are bad", w.settle(web), at(2), at(3))
	delete(w.answers, checked)
	w.wants("it passes its check", w.settle(web), at(2), at(3))
	w.answers[checked] = probe.Refused
	delete(w.answers, at(1))
	w.wants("it answers clients", w.settle(web), at(2), at(3))
	delete(w.answers, checked)
	w.wants("both are good", w.settle(web), at(1), at(2), at(3))
}

// TestFailuresAreCounted: a report has the kinds and the faults of the checks that failed.
func TestFailuresAreCounted(t *testing.T) {
	w := newWorld(t, checksOnly)
	w.serve(shop(func(*state.Service) {}), []netip.AddrPort{at(0), at(1), at(2)}, nil)
	w.answers[at(0)], w.answers[at(1)], w.answers[at(2)] = probe.Refused, probe.NoAnswer, probe.Refused
	w.settle(web)
	got := map[CheckFailure]int{}
	for _, r := range w.reports {
		for f, n := range r.Checks.Failed {
			got[f] += n
		}
	}
	refused, silent := got[CheckFailure{state.CheckTCP, probe.Refused}], got[CheckFailure{state.CheckTCP, probe.NoAnswer}]
	if len(got) != 2 || silent == 0 || refused != 2*silent {
		t.Errorf("counted: %v", got)
	}
}

// TestTenantsReadNoDetail: the first endpoint that fails gets its Service an Event, others within ten minutes do not. It does
// not say what the endpoint answered.
func TestTenantsReadNoDetail(t *testing.T) {
	w := newWorld(t, checksOnly)
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var got []string
	for i, later := range []time.Duration{0, time.Minute, 9 * time.Minute, 11 * time.Minute} {
		r := Report{Checks: CheckReport{Notes: []checks.Note{{
			At: begin.Add(later), Failing: true, Why: "HTTP status 500", Kind: state.CheckHTTP, Services: []state.Name{web},
			Target: probe.Target{At: at(byte(i % 3)), Protocol: state.TCP},
		}}}}
		w.reporter.write(&r)
		for _, e := range r.Episodes {
			got = append(got, e.Reason+" after "+later.String()+": "+e.Text)
		}
	}
	text := "endpoint 10.0.1.0:8080 fails the http check; it gets no new connections from this node, unless no endpoint passes and " +
		"on-all-down is keep"
	want := []string{"EndpointFailsCheck after 0s: " + text, "EndpointFailsCheck after 11m0s: " + text}
	if !slices.Equal(got, want) {
		t.Errorf("Events: %q\nwant: %q", got, want)
	}
}

// TestStillReadyIsTold: the Event comes once in an episode of ten minutes, after the one that began it, and again in the next one.
func TestStillReadyIsTold(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	record := suspicion.Record{
		At: at(1), Phase: suspicion.Failed, Answer: probe.NoAnswer, StillReady: true,
		Member: suspicion.Member{Service: web, Word: suspicion.Word{Node: "other"}},
	}
	now := time.Now()
	hear := func(kind suspicion.Kind) (list []Episode) {
		report := Report{Notes: []suspicion.Note{{Kind: kind, At: now, Record: record}}}
		w.reporter.write(&report)
		return report.Episodes
	}
	for range 2 {
		if list := hear(suspicion.Fell); len(list) != 1 || list[0].Reason != reasonNotAnswering {
			t.Errorf("at the beginning: %+v", list)
		}
		want := "endpoint 10.0.1.1:8080 on node other does not accept connections; it gets no new connections as far as " +
			"--max-ejected allows, until it answers again; its slice still calls it ready: perhaps only this node cannot reach it"
		if list := hear(suspicion.StillReady); len(list) != 1 || list[0].Reason != reasonStillReady || list[0].Text != want {
			t.Errorf("after a minute: %+v, want %s", list, want)
		}
		if list := slices.Concat(hear(suspicion.StillReady), hear(suspicion.Fell)); len(list) != 0 {
			t.Errorf("in the same episode: %+v", list)
		}
		now = now.Add(episodeTime)
	}
}

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
		{"[fd00:ec2::254]:80", false, false},
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
			looks, _ := w.looks.Counts()
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
	w.walker.budget = schedule.Bucket{}
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

// TestTenantLeavesTurnsForFirstLooks: a tenant has more endpoints than can be looked at in an hour. Those of another
// namespace are looked at all the same, and all are looked at in the end.
func TestTenantLeavesTurnsForFirstLooks(t *testing.T) {
	l, now, look := newLooks(), time.Now(), &state.HealthCheck{Interval: lookAgain}
	var many []probe.Target
	for i := range 10_000 {
		many = append(many, target(i))
	}
	tenant, own := state.Name{Namespace: "tenant", Name: "a"}, probe.Target{Protocol: state.TCP, At: at(1)}
	l.Set(tenant, look, many, now)
	l.Set(web, look, []probe.Target{own}, now)
	first := l.Due(now)
	if !slices.ContainsFunc(first, func(q checks.Question) bool { return q.Target == own }) || len(first) != looksAtOnce {
		t.Errorf("the first looks are at %v, want one at %s", first, at(1))
	}
	looked := 0
	for list := first; len(list) > 0; list = l.Due(now) {
		looked += len(list)
		for _, q := range list {
			l.Answered(q, probe.Answer{}, now)
		}
		now = now.Add(lookPeriod)
	}
	if looked != len(many)+1 {
		t.Errorf("%d endpoints are looked at, want %d", looked, len(many)+1)
	}
	for range 10 { // endpoints come and go
		l.Set(tenant, look, nil, now)
		l.Set(tenant, look, many, now)
	}
	if n, _ := l.Counts(); n > len(many)+1 {
		t.Errorf("%d endpoints wait, and there are %d", n, len(many)+1)
	}
}

// Load and Save implement Memory.
func (w *world) Load() ([]Remembered, error) { return slices.Clone(w.memory), nil }

func (w *world) Save(list []Remembered) error { w.memory = list; return nil }

// TestRestart: a restart brings no failed endpoint back, by whatever word it failed, and asks it first. What nobody wants any
// more is forgotten.
func TestRestart(t *testing.T) {
	pool := []netip.AddrPort{at(1), at(2), at(3), at(4), near(1)}
	svc := shop(func(s *state.Service) { s.Check.Port = 9000 })
	before := newWorld(t, func(*Options) {})
	before.Memory = before
	before.serve(svc, pool, nil)
	before.settle(web)
	checked := netip.AddrPortFrom(at(2).Addr(), 9000)
	before.answers[at(1)], before.answers[checked] = probe.Refused, probe.NoAnswer
	before.suspectAt(at(1))
	before.wants("before the restart", before.settle(web), pool[2:]...)
	before.ledger.save(&before.mu, time.Now())

	after := newWorld(t, func(o *Options) { o.Memory = before })
	after.answers = before.answers
	gone := state.Name{Namespace: "shop", Name: "gone"}
	after.Store.SetHealth(gone, state.Health{{Protocol: state.TCP, At: at(1)}})
	after.serve(svc, pool, nil)
	after.wants("in the first plan", after.plan(web), pool[2:]...)
	if after.Store.MarkSynced(); after.Store.Health(gone) != nil {
		t.Error("the health of a Service that is gone stays")
	}
	is := after.ledger.of(gone)
	is.recalled, is.published = true, state.Health{{Protocol: state.TCP, At: at(1)}} // as if it had been in the memory
	after.ledger.unsaved = true
	after.ledger.save(&after.mu, time.Now())
	if after.ledger.services[gone] != nil || slices.ContainsFunc(before.memory, func(r Remembered) bool { return r.Service == gone }) {
		t.Error("a Service that is gone is remembered for ever")
	}
	after.wants("when they have been asked", after.settle(web), pool[2:]...)
	clear(after.answers)
	after.wants("when they answer", after.settle(web), pool...)
	after.ledger.save(&after.mu, time.Now().Add(time.Hour))
	if len(before.memory) != 0 {
		t.Errorf("after the next saving: %v", before.memory)
	}

	off := newWorld(t, func(o *Options) {
		before.memory = []Remembered{{Service: web, Failure: state.Failure{Protocol: state.TCP, At: at(1)}}}
		o.Memory, o.Settings.OutlierDetection, o.Settings.ActiveChecks = before, config.OutlierOff, false
	})
	off.serve(svc, pool, nil)
	off.publish(time.Now())
	off.wants("when nobody looks any more", off.plan(web), pool...)
}

// TestWrittenAgain: a Service is deleted and written again before the loop looks. Its failing endpoint is left out all the same.
func TestWrittenAgain(t *testing.T) {
	w := newWorld(t, checksOnly)
	svc := shop(func(*state.Service) {})
	w.serve(svc, []netip.AddrPort{at(1), at(2)}, nil)
	w.Store.MarkSynced()
	w.answers[at(1)] = probe.Refused
	w.wants("before", w.settle(web), at(2))
	w.Store.DeleteService(web)
	w.Store.SetService(svc, nil)
	w.plan(web)
	w.now = w.now.Add(time.Minute)
	w.publish(w.now)
	w.wants("after", w.plan(web), at(2))
}

// TestUnreadableMemory: the process starts without it.
func TestUnreadableMemory(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Memory = faulty{} })
	w.serve(shop(func(*state.Service) {}), []netip.AddrPort{at(1)}, nil)
	w.answers[at(1)] = probe.Refused
	w.settle(web)
	if w.ledger.save(&w.mu, time.Now()); !w.ledger.unsaved {
		t.Error("what could not be saved is not tried again")
	}
}

type faulty struct{}

func (faulty) Load() ([]Remembered, error) { return nil, errors.New("injected") }

func (faulty) Save([]Remembered) error { return errors.New("injected") }

// TestTenantLeavesLines: the endpoints of one namespace do not keep those of another, nor the network of this node, out of
// the log. Suspicions that find no room are one line a minute.
func TestTenantLeavesLines(t *testing.T) {
	const limit = 10
	var text strings.Builder
	w := newWorld(t, func(o *Options) {
		lines := map[string]int{}
		o.MayWrite = func(namespace string, _ time.Time) bool { lines[namespace]++; return lines[namespace] <= limit }
		o.Log = slog.New(slog.NewTextHandler(&text, nil))
	})
	r := Report{}
	fails := func(namespace string) {
		r.Notes = append(r.Notes, suspicion.Note{Kind: suspicion.Fell, Record: suspicion.Record{
			At: at(1), Phase: suspicion.Failed, Answer: probe.NoAnswer,
			Member: suspicion.Member{Service: state.Name{Namespace: namespace, Name: "x"}},
		}})
	}
	for range 1000 {
		fails("tenant")
	}
	fails("shop")
	r.Notes = append(r.Notes, suspicion.Note{Kind: suspicion.NetworkLost})
	w.reporter.write(&r)
	for i := range 1000 {
		w.reporter.sayLeft(1, w.now.Add(time.Duration(i)*10*time.Millisecond))
	}
	for part, want := range map[string]int{"object=tenant/x": limit, "object=shop/x": 1, string(suspicion.NetworkLost): 1, "too many endpoints": 1} {
		if n := strings.Count(text.String(), part); n != want {
			t.Errorf("%d lines with %q, want %d", n, part, want)
		}
	}
}

// TestPace: the store hears of a large Service at most as often as its size allows, and of the latest state in the end.
func TestPace(t *testing.T) {
	w := newWorld(t, checksOnly)
	var backups []netip.AddrPort
	for i := range 250 {
		backups = append(backups, at(byte(i+1)))
	}
	w.serve(shop(func(*state.Service) {}), []netip.AddrPort{at(0)}, backups)
	w.settle(web)
	told, before, now := 0, w.Store.Health(web), time.Now().Add(time.Hour)
	const flips = 500
	for i := range flips {
		now = now.Add(time.Millisecond)
		w.mu.Lock()
		w.flip(web, probe.Target{Protocol: state.TCP, At: backups[i%250]}, now)
		w.mu.Unlock()
		w.publish(now)
		if h := w.Store.Health(web); !slices.Equal(h, before) {
			told, before = told+1, h
		}
	}
	if most := flips / 20; told == 0 || told > most { // 251 endpoints x 80 µs = 20 ms
		t.Errorf("the store heard %d of %d changes, at most %d are allowed", told, flips, most)
	}
	w.publish(now.Add(time.Second))
	if h := w.Store.Health(web); len(h) != 0 {
		t.Errorf("all are good in the end, and the store has %v", h)
	}
}

// BenchmarkFlap has one endpoint of a Service fail and return. Ten times as many endpoints cost ten times as much, in a tenth of
// the changes.
func BenchmarkFlap(b *testing.B) {
	for _, n := range []int{500, 5000} {
		b.Run(time.Duration(n).String(), func(b *testing.B) {
			w := newWorld(&testing.T{}, checksOnly)
			choices := make([]plan.Choice, n)
			for i := range choices {
				choices[i] = plan.Choice{Protocol: state.TCP, At: target(i).At}
			}
			w.Set(shop(func(*state.Service) {}), nil, choices)
			now := time.Now()
			for b.Loop() {
				now = now.Add(time.Hour)
				w.mu.Lock()
				w.flip(web, target(0), now)
				w.mu.Unlock()
				w.publish(now)
			}
		})
	}
}

// TestLook: what the kernel noticed comes under suspicion. With the detection off, the kernel is not asked.
func TestLook(t *testing.T) {
	asked := 0
	notice := func(o *Options) {
		o.Suspicions = func(bool) ([]Suspicion, error) { asked++; return []Suspicion{{Endpoint: at(1), Refusing: true}}, nil }
	}
	w := newWorld(t, notice)
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), at(2)}, nil)
	w.look(t.Context())
	if list := w.suspects.Records(web); len(list) != 0 { // refusals count only for those who want it
		t.Errorf("under suspicion: %+v", list)
	}
	w.serve(&state.Service{Name: web, Outliers: state.OutlierDetection{Refusals: true}}, []netip.AddrPort{at(1), at(2)}, nil)
	w.kernel.seen = nil
	w.look(t.Context())
	if list := w.suspects.Records(web); len(list) != 1 || list[0].At != at(1) || list[0].Reason != suspicion.Refusing || asked != 2 {
		t.Errorf("under suspicion: %+v; asked %d times", list, asked)
	}
	w = newWorld(t, func(o *Options) { notice(o); checksOnly(o) })
	w.look(t.Context())
	if asked != 2 {
		t.Error("asked the kernel, and nobody wants to know")
	}
}

// TestQuietReport: while nothing happens, a report does not list the suspicions.
func TestQuietReport(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), at(2)}, nil)
	w.suspectAt(at(1))
	w.tell()
	w.tell()
	if r := w.reports; len(r) != 2 || len(r[0].Notes) != 1 || len(r[0].Statuses) != 1 || r[1].Statuses != nil {
		t.Errorf("reports: %+v", r)
	}
}

// TestWitness: one witness that can be reached shows that this node has its network, whatever the others say.
func TestWitness(t *testing.T) {
	faults := map[netip.AddrPort]probe.Fault{
		at(1): probe.NoAnswer, at(2): probe.NoRoute, at(3): probe.Refused, at(4): probe.HostAnswers, at(5): probe.NoFault,
	}
	w := newWorld(t, func(o *Options) {
		o.Ask = func(_ context.Context, q *probe.Question) probe.Answer { return probe.Answer{Fault: faults[q.At]} }
	})
	for _, tt := range []struct {
		of   []netip.AddrPort
		want suspicion.Witnesses
	}{
		{nil, suspicion.NoWitness},
		{[]netip.AddrPort{at(1), at(2)}, suspicion.AllSilent},
		{[]netip.AddrPort{at(1), at(2), at(3)}, suspicion.SomeAnswer},
		{[]netip.AddrPort{at(4), at(1)}, suspicion.SomeAnswer},
		{[]netip.AddrPort{at(5)}, suspicion.SomeAnswer},
	} {
		got := suspicion.Witnesses(99)
		go w.asker.witness(t.Context(), tt.of, func(is suspicion.Witnesses) { got = is })
		if (<-w.asker.ends)(); got != tt.want {
			t.Errorf("witnesses %v: %d, want %d", tt.of, got, tt.want)
		}
	}
}

// TestSiblingsOnce: the other endpoints of a node come under suspicion once, not with each look.
func TestSiblingsOnce(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), at(2)}, nil)
	w.walker.wantSiblings("", false, start)
	if found := w.walker.findSiblings(start); found != nil {
		t.Errorf("nobody is wanted, and %v are found", found)
	}
	w.walker.wantSiblings("node-10.0.1.1", false, start)
	if found := w.walker.findSiblings(start); len(found) != 1 || len(found[at(1)]) != 1 {
		t.Errorf("found %v, want the endpoint of this node and its Service", found)
	}
	w.walker.budget = schedule.Bucket{}
	if found := w.walker.findSiblings(start.Add(time.Hour)); found != nil {
		t.Errorf("found again: %v", found)
	}
}

// TestNobodyWatches: of a Service that wants nothing of this, nothing is remembered.
func TestNobodyWatches(t *testing.T) {
	w := newWorld(t, checksOnly)
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1)}, nil)
	svc, list := w.Store.Service(web)
	if w.Set(svc, list, nil); len(w.ledger.services) != 0 || len(w.ledger.queue) != 0 {
		t.Errorf("%d Services are remembered, %d wait", len(w.ledger.services), len(w.ledger.queue))
	}
}

// TestMembersWord: the detector hears what the slice of an endpoint says.
func TestMembersWord(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	e := state.Endpoint{Addr: at(1).Addr(), Node: "other", Serving: true, Terminating: true}
	sl := &state.Slice{Name: web, Service: web, Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}, Endpoints: []state.Endpoint{e}}
	all := func(netip.Addr) bool { return true }
	word := func() suspicion.Word {
		return w.walker.members(&state.Service{Name: web}, []*state.Slice{sl}, all)[at(1)].Word
	}
	if got, want := word(), (suspicion.Word{Node: "other", Serving: true, Terminating: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	sl.Endpoints[0] = state.Endpoint{Addr: at(1).Addr(), Node: "other", Ready: true}
	if got, want := word(), (suspicion.Word{Node: "other", Ready: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestMemoryOfTheGone: failures of a Service that was deleted while no process ran are saved until all objects are known, and
// forgotten then. Failures of others that the store does not know yet stay.
func TestMemoryOfTheGone(t *testing.T) {
	w := newWorld(t, checksOnly)
	gone := state.Name{Namespace: "shop", Name: "gone"}
	for _, n := range []state.Name{web, gone} {
		w.ledger.of(n).published = state.Health{{Protocol: state.TCP, At: at(1)}}
	}
	w.ledger.of(gone).recalled = true
	if list := w.ledger.failures(); len(list) != 2 {
		t.Errorf("before all objects are known: %+v", list)
	}
	w.Store.MarkSynced()
	if list := w.ledger.failures(); len(list) != 1 || list[0].Service != web || w.ledger.services[gone] != nil {
		t.Errorf("afterwards: %+v", list)
	}
}
