package proxier

import (
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// checkedRig plans one Service with these endpoints and backups, over and over.
type checkedRig struct {
	*Outliers
	svc  *state.Service
	list []*state.Slice
	pool []plan.Endpoint
}

func newCheckedRig(svc state.Service, primaries, backups int, o OutlierOptions) *checkedRig {
	s := config.Default()
	s.OutlierDetection = config.OutlierOff // active checks need no other detection
	o.Settings, o.Store, o.Log, o.Report = &s, state.NewStore(), slog.New(slog.DiscardHandler), func(OutlierReport) {}
	r := &checkedRig{Outliers: NewOutliers(o), svc: &svc}
	for i := range primaries + backups {
		r.pool = append(r.pool, plan.Endpoint{Addr: checkedEndpoint(i), Weight: 1, Backup: i >= primaries})
	}
	r.list = []*state.Slice{{Backup: backups > 0}}
	return r
}

func checkedEndpoint(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8080)
}

// plan does what a pass does with the Service, and returns its pool.
func (r *checkedRig) plan() []plan.Endpoint {
	r.begin(r.svc, r.list)
	pool := r.Choose(r.svc, state.TCP, slices.Clone(r.pool))
	r.set(r.svc.Name, &plan.Service{Name: r.svc.Name})
	return pool
}

// answer asks everyone now, however long the intervals are, and answers for them.
func (r *checkedRig) answer(bad ...int) {
	for range 3 {
		at := r.checker.Next()
		for _, q := range r.checker.Due(at.Add(2 * time.Second)) {
			good := !slices.ContainsFunc(bad, func(i int) bool { return checkedEndpoint(i) == q.Target.At })
			r.checker.Answered(q, activecheck.Result{Good: good, Why: "connection refused"}, at)
		}
	}
}

func shop(change func(*state.Service)) state.Service {
	svc := state.Service{Name: state.Name{Namespace: "shop", Name: "web"}, Check: &state.HealthCheck{
		Kind: state.CheckTCP, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1,
	}}
	change(&svc)
	return svc
}

// TestChecksChoose has 2 primary and 2 backup endpoints, of which some fail.
func TestChecksChoose(t *testing.T) {
	for _, tt := range []struct {
		name    string
		allDown state.AllDown
		bad     []int
		want    []int
		backup  string // what is told of the first backup
	}{
		{"all pass", state.KeepAll, nil, []int{0, 1}, "backup, not used: another endpoint is good"},
		{"one fails", state.KeepAll, []int{0}, []int{1}, "backup, not used: another endpoint is good"},
		{"the primaries fail", state.KeepAll, []int{0, 1}, []int{2, 3}, "backup, in use: no other endpoint is good"},
		{"one backup passes", state.RefuseAll, []int{0, 1, 2}, []int{3}, "backup, not used: it is bad itself"},
		{"all fail, keep", state.KeepAll, []int{0, 1, 2, 3}, []int{0, 1}, "backup, not used: no endpoint is good, and on-all-down is keep"},
		{"all fail, reject", state.RefuseAll, []int{0, 1, 2, 3}, nil, "backup, not used: no endpoint is good, and on-all-down is reject"},
		{"all fail, backup", state.BackupOnly, []int{0, 1, 2, 3}, []int{2, 3}, "backup, in use: no other endpoint is good"},
	} {
		r := newCheckedRig(shop(func(s *state.Service) { s.AllDown = tt.allDown }), 2, 2, OutlierOptions{})
		r.plan()
		r.answer(tt.bad...)
		var want []netip.AddrPort
		for _, i := range tt.want {
			want = append(want, checkedEndpoint(i))
		}
		var got []netip.AddrPort
		for _, e := range r.plan() {
			got = append(got, e.Addr)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", tt.name, got, want)
		}
		var shown []string
		for _, s := range r.Statuses() {
			if shown = append(shown, s.State.String()); s.State == outlier.StateFailing {
				if kept := slices.Contains(got, s.Endpoint); kept != (s.Hold == outlier.NobodyGood) {
					t.Errorf("%s: %s gets connections: %t, and is held because %q", tt.name, s.Endpoint, kept, s.Hold)
				}
			} else if is := s.State.String() + ": " + s.Why; s.Endpoint == checkedEndpoint(2) && is != tt.backup {
				t.Errorf("%s: %q, want %q", tt.name, is, tt.backup)
			}
		}
		if n := strings.Count(strings.Join(shown, ";"), "failing"); n != len(tt.bad) || len(shown) != n+2 {
			t.Errorf("%s: states %v, want %d failing and 2 backup", tt.name, shown, len(tt.bad))
		}
	}
}

// TestBackupsInUse: a backup endpoint is in use since the first plan that uses it, and a Service counts while it is on
// backups.
func TestBackupsInUse(t *testing.T) {
	r := newCheckedRig(shop(func(*state.Service) {}), 1, 1, OutlierOptions{})
	r.plan()
	r.answer(0)
	var since time.Time
	for range 3 {
		r.plan()
		list := r.StatusesOf(r.svc.Name)
		if last := list[len(list)-1]; last.State != outlier.StateBackupInUse || last.Since.IsZero() || !since.IsZero() && last.Since != since {
			t.Fatalf("%+v, in use since %s", last, since)
		} else {
			since = last.Since
		}
		if r.uses.OnBackups != 1 {
			t.Fatalf("%d Services are on backups", r.uses.OnBackups)
		}
	}
	r.answer()
	if r.plan(); r.uses.OnBackups != 0 {
		t.Error("the primary endpoint is good, and the Service counts as on backups")
	}
	r.answer(0)
	if r.plan(); r.uses.OnBackups != 1 || !r.StatusesOf(r.svc.Name)[1].Since.After(since) {
		t.Errorf("the second time: %+v", r.StatusesOf(r.svc.Name))
	}
	var told []Uses
	r.Report = func(o OutlierReport) { told = append(told, o.Uses) }
	for range 2 {
		r.tell()
	}
	r.set(r.svc.Name, nil)
	r.tell()
	if !slices.Equal(told, []Uses{{OnBackups: 1}, {}}) {
		t.Errorf("reports: %+v; wanted one while it is on backups, and one when it is gone", told)
	}
}

// TestBothMustBeGood: an endpoint that has failed and fails its check gets connections when both say that it is good,
// whichever is first.
func TestBothMustBeGood(t *testing.T) {
	for _, checkFirst := range []bool{true, false} {
		r := newCheckedRig(shop(func(s *state.Service) { s.Outliers.Mode = state.OutlierEject }), 3, 0, OutlierOptions{})
		r.Settings.OutlierDetection = config.OutlierEject
		now := time.Now()
		ask := func(a outlier.Answer) {
			for range 2 {
				now = now.Add(time.Minute)
				r.detector.Due(now)
				r.detector.Answered(checkedEndpoint(0), a, true, now)
			}
		}
		r.plan()
		r.answer()
		r.list[0].Ports = []state.SlicePort{{Protocol: state.TCP, Port: 8080}}
		r.list[0].Endpoints = []state.Endpoint{{Addr: checkedEndpoint(0).Addr(), Ready: true}}
		word := outlier.Word{Ready: true}
		r.detector.Suspect(checkedEndpoint(0), outlier.Unanswered, []outlier.Member{{Service: r.svc.Name, Word: word}}, now)
		ask(outlier.Refused)
		r.answer(0)
		steps := []func(){func() { r.answer() }, func() { ask(outlier.Good) }}
		if !checkFirst {
			slices.Reverse(steps)
		}
		want := []int{2, 2, 3}
		for i, n := range want {
			if pool := r.plan(); len(pool) != n {
				t.Errorf("check first %t, after %d of 2 returns: %v", checkFirst, i, pool)
			}
			if i < len(steps) {
				steps[i]()
			}
		}
	}
}

// TestFailuresAreCounted: a report has the kinds and the faults of the checks that failed.
func TestFailuresAreCounted(t *testing.T) {
	r := newCheckedRig(shop(func(*state.Service) {}), 3, 0, OutlierOptions{})
	r.plan()
	faults := []activecheck.Fault{activecheck.Refused, activecheck.NoAnswer, activecheck.Refused}
	for i, q := range r.checker.Due(r.checker.Next().Add(2 * time.Second)) {
		r.checked(q, activecheck.Result{Fault: faults[i]})
	}
	var got map[activecheck.Failure]int
	r.Report = func(o OutlierReport) { got = o.Checks.Failed }
	r.tell()
	refused, silent := activecheck.Failure{Kind: state.CheckTCP, Fault: activecheck.Refused}, activecheck.Failure{Kind: state.CheckTCP, Fault: activecheck.NoAnswer}
	if len(got) != 2 || got[refused] != 2 || got[silent] != 1 {
		t.Errorf("counted: %v", got)
	}
}

// TestEpisodeOfFailingChecks: the first endpoint that fails gets its Service an Event, others within ten minutes do not.
func TestEpisodeOfFailingChecks(t *testing.T) {
	r := newCheckedRig(shop(func(*state.Service) {}), 3, 0, OutlierOptions{})
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var reasons []string
	for i, later := range []time.Duration{0, time.Minute, 9 * time.Minute, 11 * time.Minute} {
		var report OutlierReport
		report.Checks.Notes = []activecheck.Note{{
			At: at.Add(later), Failing: true, Why: "connection refused", Kind: state.CheckTCP, Services: []state.Name{r.svc.Name},
			Target: activecheck.Target{At: checkedEndpoint(i % 3), Protocol: state.TCP},
		}}
		r.write(&report)
		for _, e := range report.Episodes {
			reasons = append(reasons, e.Reason+" after "+later.String()+" about "+e.Service.String())
			if want := "endpoint 10.0.0." + strconv.Itoa(i%3) + ":8080 fails the tcp check: connection refused"; !strings.HasPrefix(e.Text, want) {
				t.Errorf("%q, want %q", e.Text, want)
			}
		}
	}
	want := "EndpointFailsCheck after 0s about shop/web; EndpointFailsCheck after 11m0s about shop/web"
	if got := strings.Join(reasons, "; "); got != want {
		t.Errorf("Events: %s\nwant:   %s", got, want)
	}
}

// TestWhoIsChecked: a Service that asks, or any one of a folder with the flag, except those of the cluster itself.
func TestWhoIsChecked(t *testing.T) {
	byDefault := &state.HealthCheck{Kind: state.CheckTCP, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}
	for _, tt := range []struct {
		name   state.Name
		asked  *state.HealthCheck
		flag   *state.HealthCheck
		checks int
	}{
		{state.Name{Namespace: "shop", Name: "web"}, nil, nil, 0},
		{state.Name{Namespace: "shop", Name: "web"}, nil, byDefault, 2},
		{state.Name{Namespace: "shop", Name: "web"}, &state.HealthCheck{}, byDefault, 0}, // off
		{state.Name{Namespace: "kube-system", Name: "dns"}, nil, byDefault, 0},
		{state.Name{Namespace: "kube-system", Name: "dns"}, byDefault, nil, 2},
		{kubernetesService(), nil, byDefault, 0},
	} {
		r := newCheckedRig(shop(func(s *state.Service) { s.Name, s.Check = tt.name, tt.asked }), 2, 0, OutlierOptions{Default: tt.flag})
		r.plan()
		if n, _ := r.checker.Counts(); n != tt.checks {
			t.Errorf("%s asks %v with the flag %v: %d checks, want %d", tt.name, tt.asked, tt.flag, n, tt.checks)
		}
		r.set(tt.name, nil)
		if n, _ := r.checker.Counts(); n > 0 || len(r.rows) > 0 {
			t.Errorf("%s is gone, and %d checks stay", tt.name, n)
		}
	}
}

// TestSlowStart: the weight of an endpoint that returns grows in steps, and the Service is planned for each.
func TestSlowStart(t *testing.T) { synctest.Test(t, testSlowStart) } // no time passes between its steps

func testSlowStart(t *testing.T) {
	const takes = 50 * time.Second
	r := newCheckedRig(shop(func(s *state.Service) { s.SlowStart = takes }), 3, 0, OutlierOptions{})
	r.plan()
	r.answer(0)
	if pool := r.plan(); len(pool) != 2 || pool[0].Weight != 1 {
		t.Fatalf("the pool is %v", pool)
	}
	r.answer()
	r.replan()
	began := time.Now()
	for step := 1; step < slowSteps; step++ {
		if pool := r.plan(); len(pool) != 3 || int(pool[0].Weight) != step || pool[1].Weight != slowSteps {
			t.Fatalf("step %d: %v", step, pool)
		}
		if len(r.replanAt(began)) > 0 || !slices.Contains(r.replanAt(began.Add(takes)), r.svc.Name) {
			t.Fatalf("step %d: the next step comes too soon, or never", step)
		}
		r.age(takes / slowSteps)
	}
	if pool := r.plan(); pool[0].Weight != 1 || pool[1].Weight != 1 {
		t.Errorf("at the end: %v", pool)
	}
	if r.slow.grow(began.Add(time.Hour)); len(r.slow.of) > 0 {
		t.Error("the slow start does not end")
	}
}

// replanAt lists the Services that have a step to do at some time.
func (r *checkedRig) replanAt(now time.Time) []state.Name {
	r.slow.grow(now)
	return r.slow.changed()
}

// age makes the slow starts older.
func (r *checkedRig) age(d time.Duration) {
	for _, is := range r.slow.of {
		for at := range is.began {
			is.began[at] = is.began[at].Add(-d)
		}
	}
}

// TestScale: weights keep their proportion, also if they are large.
func TestScale(t *testing.T) {
	pool := []plan.Endpoint{{Weight: 65535}, {Weight: 65535}, {Weight: 1}}
	if scale(pool, []int{slowSteps, 1, slowSteps}); pool[0].Weight != 65535 || pool[1].Weight != 13107 || pool[2].Weight != 1 {
		t.Errorf("%v", pool)
	}
}
