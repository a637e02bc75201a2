package endpointhealth

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

func kubernetesService() state.Name { return state.Name{Namespace: "default", Name: "kubernetes"} }

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
	is := w.planner.Plan(svc, list, &plan.Environment{NodeName: "this", IPv4: true, Draining: w.Store.Environment().Drain == state.Refusing})
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
		questions := w.checks.Due(now)
		w.mu.Unlock()
		for _, q := range questions {
			if q.Doubts != nil {
				w.witnessed(checks.SomeAnswer)
			} else {
				w.answered(q, w.answerOf(q.At))
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
	go w.asker.one(w.t.Context(), &probe.Question{Target: probe.Target{Protocol: state.TCP, At: at}}, func(a probe.Answer) { answer = a })
	(<-w.asker.ends)()
	return answer
}

// looks counts the first looks.
func (w *world) looks() int {
	n, _ := w.checks.Terms[checks.Look].Room.Used("")
	return n
}

// flip has an endpoint fail its check, or pass it.
func (w *world) flip(name state.Name, t probe.Target, now time.Time) {
	is := w.ledger.of(name)
	i, _ := checks.Find(is.Choices, t.Protocol, t.At)
	k := is.Checks[i]
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
	w.walker.budget = threadtime.Bucket{}
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
		for _, s := range w.Statuses(state.Name{}) {
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
		if looks := w.looks(); len(w.ledger.services)+looks+len(w.checks.Suspects(state.Name{})) > 0 {
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
		backup  string // what the report says of the first backup
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
		for _, s := range w.Statuses(web) {
			if s.Service != web {
				t.Errorf("%s: %s is one of %s", tt.name, s.At, s.Service)
			}
			if s.State == StateFailing {
				failing++
				if kept := slices.Contains(got, s.At); kept != (s.Hold == checks.NobodyGood) {
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
	holds := func(want ...checks.Hold) {
		t.Helper()
		var got []checks.Hold
		for _, s := range w.Statuses(web) {
			got = append(got, s.Hold)
		}
		if !slices.Equal(got, want) {
			t.Errorf("failing endpoints get connections because %q, want %q", got, want)
		}
	}
	w.wants("nobody far away has ever answered", w.settle(web), pool...)
	holds(checks.NeverReached, checks.NeverReached, checks.NeverReached)
	w.answers[near(1)] = probe.NoAnswer
	w.wants("an endpoint on this node is silent", w.settle(web), at(1), at(2), at(3), near(2))
	delete(w.answers, at(3))
	w.wants("one has answered", w.settle(web), at(3), near(2))
	w.answers[at(3)] = probe.NoAnswer // the policy came back: no more than a share of the pool is left out
	w.wants("nobody far away answers any more", w.settle(web), at(3), near(2))
	holds(checks.None, checks.None, checks.Limit, checks.None)
}

// TestReadyBeforeItListens: a pod is ready, and its program does not listen yet. It refuses clients and this node, which another endpoint
// on another node has answered: no network policy does that, so it is left out. Anything less may be a policy.
func TestReadyBeforeItListens(t *testing.T) {
	for name, tt := range map[string]struct {
		answer, others probe.Fault
		late           netip.AddrPort
		reasons        []bool // what the kernel notices: refusals or silence
		out            bool
	}{
		"refused":                      {probe.Refused, probe.NoFault, at(1), []bool{true}, true},
		"this node only":               {probe.Refused, probe.NoFault, at(1), []bool{false}, false},
		"clients later":                {probe.Refused, probe.NoFault, at(1), []bool{false, true}, true},
		"silent":                       {probe.NoAnswer, probe.NoFault, at(1), []bool{true}, false},
		"only its own pods":            {probe.Refused, probe.NoAnswer, at(1), []bool{true}, false},
		"a pod on this node":           {probe.Refused, probe.NoAnswer, near(2), []bool{true}, true},
		"a pod on this node is silent": {probe.NoAnswer, probe.NoFault, near(2), []bool{true}, false},
	} {
		w := newWorld(t, func(*Options) {})
		pool := []netip.AddrPort{at(1), at(2), near(1), near(2)}
		w.answers[at(2)], w.answers[tt.late] = tt.others, tt.answer
		w.serve(&state.Service{Name: web, Outliers: state.OutlierDetection{Refusals: true}}, pool, nil)
		w.wants(name+": before", w.settle(web), pool...)
		for i, refusing := range tt.reasons {
			w.walker.budget = threadtime.Bucket{}
			w.suspect([]Suspicion{{Endpoint: tt.late, Refusing: refusing, Packets: uint64(i + 1)}})
			w.settle(web)
		}
		want := slices.Clone(pool)
		if tt.out {
			want = slices.DeleteFunc(want, func(a netip.AddrPort) bool { return a == tt.late })
		}
		w.wants(name, w.settle(web), want...)
		delete(w.answers, tt.late)
		w.wants(name+": it listens", w.settle(web), pool...)
	}
}

// TestBackupsInUse: a backup endpoint is in use since the first plan that uses it, and a Service counts while it is on
// backups.
func TestBackupsInUse(t *testing.T) {
	w := newWorld(t, checksOnly)
	w.serve(shop(func(*state.Service) {}), []netip.AddrPort{at(0)}, []netip.AddrPort{at(1)})
	w.answers[at(0)] = probe.Refused
	w.wants("the primary fails", w.settle(web), at(1))
	first := w.Statuses(web)
	if last := first[len(first)-1]; last.State != StateBackupInUse || last.Since.IsZero() || w.report.OnBackups != 1 {
		t.Fatalf("%+v, %d Services are on backups", last, w.report.OnBackups)
	}
	w.settle(web)
	if again := w.Statuses(web); again[1].Since != first[1].Since {
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

// TestFailuresAreCounted: a report has the kinds and the faults of the checks that failed, which metrics know in advance.
func TestFailuresAreCounted(t *testing.T) {
	w := newWorld(t, checksOnly)
	w.serve(shop(func(*state.Service) {}), []netip.AddrPort{at(0), at(1), at(2), at(3)}, nil)
	w.answers[at(0)], w.answers[at(1)], w.answers[at(2)] = probe.Refused, probe.NoAnswer, probe.Refused
	w.settle(web)
	got := map[Answer]int{}
	for _, r := range w.reports {
		for a, n := range r.Answers {
			got[a] += n
		}
	}
	count := func(f probe.Fault) int { return got[Answer{state.CheckTCP, f}] }
	silent := count(probe.NoAnswer)
	if len(got) != 3 || silent == 0 || count(probe.Refused) != 2*silent || count(probe.NoFault) != silent {
		t.Errorf("counted: %v", got)
	}
	known := map[Answer]bool{}
	for _, f := range CheckFailures() {
		known[f] = true
	}
	for _, kind := range []state.CheckKind{state.CheckTCP, state.CheckHTTP, state.CheckHTTPS, state.CheckDNS} {
		for _, fault := range []probe.Fault{probe.OtherFault, probe.NoAnswer, probe.WrongAnswer} {
			if !known[Answer{kind, fault}] {
				t.Errorf("metrics do not know that a check %s fails with %q", kind, fault)
			}
		}
	}
	if len(known) != 4*int(probe.WrongAnswer) {
		t.Errorf("metrics know %d ways to fail: %v", len(known), known)
	}
}

// TestTenantsReadNoDetail: the first endpoint that fails gets its Service an Event, others within ten minutes do not. It does
// not say what the endpoint answered.
func TestTenantsReadNoDetail(t *testing.T) {
	w := newWorld(t, checksOnly)
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var got []string
	for i, later := range []time.Duration{0, time.Minute, 9 * time.Minute, 11 * time.Minute} {
		r := Report{Notes: []checks.Note{{
			At: begin.Add(later), Why: "HTTP status 500", Services: []state.Name{web}, Question: &probe.Question{
				Target: probe.Target{At: at(byte(i % 3)), Protocol: state.TCP}, Check: state.HealthCheck{Kind: state.CheckHTTP},
			},
		}}}
		r.Notes[0].Kind = checks.CheckPasses
		if w.reporter.write(&r); len(r.Episodes) > 0 {
			t.Errorf("it passes: %+v", r.Episodes)
		}
		r.Notes[0].Kind, r.Episodes = checks.CheckFails, nil
		w.reporter.write(&r)
		for _, e := range r.Episodes {
			got = append(got, e.Service.Name+": "+e.Reason+" after "+later.String()+": "+e.Text)
		}
	}
	text := "endpoint 10.0.1.0:8080 fails the http check; it gets no new connections from this node, unless no endpoint passes and " +
		"on-all-down is keep"
	want := []string{"web: EndpointFailsCheck after 0s: " + text, "web: EndpointFailsCheck after 11m0s: " + text}
	if !slices.Equal(got, want) {
		t.Errorf("Events: %q\nwant: %q", got, want)
	}
	later := Episode{Service: state.Name{Namespace: "bank", Name: "web"}, Reason: reasonFailing}
	w.reporter.begin(&Report{}, later, begin.Add(time.Hour), func() string { return "" })
	if n := len(w.reporter.episodes); n != 1 {
		t.Errorf("%d episodes are remembered, want the latest", n)
	}
}

// TestStillReadyIsTold: the Event comes once in an episode of ten minutes, after the one that began it, and again in the next one.
func TestStillReadyIsTold(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	record := checks.Suspect{
		At: at(1), Check: checks.Check{Record: checks.Record{Down: true, Fault: probe.NoAnswer}}, StillReady: true,
		Member: checks.Member{Service: web, Word: checks.Word{Node: "other"}},
	}
	now := time.Now()
	hear := func(kind checks.Kind) (list []Episode) {
		report := Report{Notes: []checks.Note{{Kind: kind, At: now, Suspect: record}}}
		w.reporter.write(&report)
		return report.Episodes
	}
	for range 2 {
		if list := hear(checks.Fell); len(list) != 1 || list[0].Reason != reasonNotAnswering || list[0].Service != web {
			t.Errorf("at the beginning: %+v", list)
		}
		want := "endpoint 10.0.1.1:8080 on node other does not accept connections; it gets no new connections as far as " +
			"--max-ejected allows, until it answers again; its slice still calls it ready: perhaps only this node cannot reach it"
		if list := hear(checks.StillReady); len(list) != 1 || list[0].Reason != reasonStillReady || list[0].Text != want {
			t.Errorf("after a minute: %+v, want %s", list, want)
		}
		if list := slices.Concat(hear(checks.StillReady), hear(checks.Fell)); len(list) != 0 {
			t.Errorf("in the same episode: %+v", list)
		}
		now = now.Add(episodeTime)
	}
}
