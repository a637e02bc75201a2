package checks

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func target(n int) probe.Target {
	return probe.Target{Protocol: state.TCP, At: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 80)}
}

func targets(n int) (list []probe.Target) {
	for i := range n {
		list = append(list, target(i))
	}
	return list
}

func tcpCheck() *state.HealthCheck {
	return &state.HealthCheck{Kind: state.CheckTCP, Interval: 5 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
}

// checker is a Checker, and what it has told.
type checker struct {
	*Checker
	notes    []Note
	changed  map[state.Name]bool
	services map[state.Name][]*Check
}

// Set tells the Checker the endpoints of a Service that are to be checked.
func (c *checker) Set(name state.Name, want *state.HealthCheck, targets []probe.Target, now time.Time) (list []*Check, left int) {
	list, left = c.Checker.Set(name, Active, want, targets, c.services[name], now)
	if c.services[name] = list; len(list) == 0 {
		delete(c.services, name)
	}
	return list, left
}

// left tells the Checker the endpoints of a Service, and returns how many of them find no room.
func (c *checker) left(name state.Name, want *state.HealthCheck, targets []probe.Target, now time.Time) int {
	_, left := c.Set(name, want, targets, now)
	return left
}

// of returns a check.
func (c *checker) of(name state.Name, want *state.HealthCheck, t probe.Target) *Check {
	return c.find(place{name.Namespace, t, Active}, want)
}

// told returns what the Checker has told since the last call.
func (c *checker) told() (changed map[state.Name]bool, notes []Note) {
	changed, notes = c.changed, c.notes
	c.changed, c.notes = map[state.Name]bool{}, nil
	return changed, notes
}

func steady() *checker { return checkerWith(func() float64 { return 0 }) }

// checkerWith returns a Checker whose questions cost nothing.
func checkerWith(jitter func() float64) *checker { return checkerAt(0, jitter) }

// The rates of checkerAt, of a processor, and its limits.
const (
	tenantRate = 0.05
	rateBurst  = time.Second
	checkPause = 50 * time.Millisecond

	maxChecks          = 20_000
	maxChecksOfService = maxChecks / 4
	maxAsking          = 512
	maxQuestions       = 32
	maxOfTenant        = 4096
)

// checkerAt returns a Checker whose questions have a cost.
func checkerAt(cost time.Duration, jitter func() float64) *checker {
	c := &checker{changed: map[state.Name]bool{}, services: map[state.Name][]*Check{}}
	c.Checker = New(Options{
		Terms: termsWith(cost), Jitter: jitter,
		Changed: func(name state.Name) { c.changed[name] = true }, Note: func(n Note) { c.notes = append(c.notes, n) },
	})
	return c
}

// termsWith are the terms of checks that have a cost, and of suspicions that have none.
func termsWith(cost time.Duration) (t AllTerms) {
	t[Active] = &Terms{
		Lane: schedule.Lane{Asking: schedule.NewRoom(maxAsking, 2), Rates: schedule.NewRates(2*tenantRate, tenantRate, rateBurst)},
		Room: schedule.NewRoom(maxChecks, 2), Cost: func(state.CheckKind) time.Duration { return cost },
	}
	t[Look] = &Terms{
		Lane: schedule.Lane{Asking: schedule.NewRoom(maxAsking, 2), Rates: schedule.NewRates(0, 1, time.Second)},
		Room: schedule.NewRoom(maxChecks, 2), Cost: func(state.CheckKind) time.Duration { return 0 },
	}
	t[Suspicion] = &Terms{
		Lane: schedule.Lane{Asking: schedule.NewRoom(maxQuestions, 2), Rates: schedule.NewRates(0, 1, time.Second)},
		Room: schedule.NewRoom(4*maxOfTenant, 4), Cost: func(state.CheckKind) time.Duration { return 0 },
	}
	return t
}

var web = state.Name{Namespace: "shop", Name: "web"}

var start = time.Unix(1_000_000, 0)

func answerIs(good bool) probe.Answer {
	if good {
		return probe.Answer{Connected: true}
	}
	return probe.Answer{Fault: probe.Refused, Why: "no"}
}

// round asks everyone who is due, and gives all the same answer.
func round(c *checker, good bool, now time.Time) (asked int) {
	list := c.Due(now)
	for _, q := range list {
		c.Answered(q, answerIs(good), now)
	}
	return len(list)
}

// TestRiseAndFall: an endpoint fails after fall bad answers, and passes after rise good ones. Before it has passed, one
// answer decides.
func TestRiseAndFall(t *testing.T) {
	c, check := steady(), tcpCheck()
	c.Set(web, check, targets(1), start)
	now := start
	for i, step := range []struct{ good, down, changed bool }{
		{false, true, true}, {true, false, true},
		{false, false, false}, {false, false, false}, {true, false, false}, // the good answer begins the count anew
		{false, false, false}, {false, false, false}, {false, true, true},
		{true, true, false}, {false, true, false}, {true, true, false}, {true, false, true},
	} {
		if n := round(c, step.good, now); n != 1 {
			t.Fatalf("step %d: %d questions", i, n)
		}
		down := c.of(web, check, target(0)).Down
		if changed, notes := c.told(); down != step.down || (len(changed) > 0) != step.changed || len(notes) != len(changed) {
			t.Fatalf("step %d: down %t, changed %v; want %+v", i, down, changed, step)
		} else if len(notes) > 0 {
			why, kind := "", CheckPasses // of the latest bad answer
			if down {
				kind = CheckFails
			}
			if i > 0 || down {
				why = answerIs(false).Why
			}
			want := Note{Kind: kind, At: now, Question: &probe.Question{Target: target(0), Check: *check}, Why: why, Services: []state.Name{web}}
			if !reflect.DeepEqual(notes[0], want) {
				t.Errorf("step %d: told %+v, want %+v", i, notes[0], want)
			}
		}
		if n := round(c, true, now.Add(check.Interval-1)); n > 0 {
			t.Fatalf("step %d: asked again before the interval is over", i)
		}
		now = now.Add(check.Interval)
	}
}

// TestShared: Services of a namespace share a check, those of another one do not, and the last one ends it.
func TestShared(t *testing.T) {
	c, check := steady(), tcpCheck()
	other, foreign := state.Name{Namespace: "shop", Name: "other"}, state.Name{Namespace: "bank", Name: "web"}
	for _, name := range []state.Name{web, other, foreign} {
		c.Set(name, check, targets(2), start)
	}
	if all, _ := c.Counts(); all != 4 {
		t.Errorf("%d checks, want 4", all)
	}
	round(c, false, start)
	if list, _ := c.told(); len(list) != 3 {
		t.Errorf("changed: %v", list)
	}
	c.Set(web, nil, nil, start)
	c.Set(other, check, targets(1), start)
	c.Set(foreign, nil, nil, start)
	if all, failing := c.Counts(); all != 1 || failing != 1 || len(c.endpoints) != 1 || c.used() != 1 {
		t.Errorf("%d checks, %d of them fail, endpoints %v, %d counted", all, failing, c.endpoints, c.used())
	}
	c.Set(other, check, []probe.Target{target(1), target(1), target(0)}, start) // two endpoints of which the same port is asked
	c.Set(other, nil, nil, start)
	if c.Due(start); len(c.endpoints)+len(c.services)+c.line.Waiting() > 0 || c.used() != 0 || c.failing != 0 {
		t.Errorf("something stays: %+v", c)
	}
}

// TestTurns: a namespace that writes many questions to one endpoint asks it once in the interval all the same.
func TestTurns(t *testing.T) {
	c := checkerWith(rand.New(rand.NewPCG(3, 4)).Float64)
	for i := range 100 {
		check := tcpCheck()
		check.Kind, check.Path = state.CheckHTTP, fmt.Sprint("/", i)
		c.Set(state.Name{Namespace: "shop", Name: fmt.Sprint("web-", i)}, check, targets(1), start)
	}
	latest, asked := time.Time{}, map[string]int{}
	for now := start; now.Before(start.Add(time.Hour)); now = now.Add(50 * time.Millisecond) {
		for _, q := range c.Due(now) {
			if now.Sub(latest) < q.Check.Interval {
				t.Fatalf("asked after %s", now.Sub(latest))
			}
			latest = now
			asked[q.Check.Path]++
			c.Answered(q, answerIs(true), now)
		}
	}
	for path, n := range asked {
		if n < 5 || n > 9 { // 655 to 720 turns
			t.Errorf("%s had %d turns in an hour; all have about the same", path, n)
		}
	}
	if len(asked) < 100 {
		t.Errorf("only %d of 100 questions had a turn in an hour", len(asked))
	}
}

// TestSpread: the questions to many endpoints come evenly, not all at once.
func TestSpread(t *testing.T) {
	c := checkerWith(rand.New(rand.NewPCG(1, 2)).Float64)
	c.Set(web, tcpCheck(), targets(5000), start)
	most := 0
	for now := start; now.Before(start.Add(time.Minute)); now = now.Add(10 * time.Millisecond) {
		most = max(most, round(c, true, now))
	}
	if most > 40 { // 10 on average
		t.Errorf("%d questions within 10 ms", most)
	}
}

// fill gives a Service of a namespace as many checks as it can have, from an endpoint on.
func fill(c *checker, namespace, name string, from int) (left int) {
	return c.left(state.Name{Namespace: namespace, Name: name}, tcpCheck(), targets(from + maxChecksOfService)[from:], start)
}

// TestBounds: no Service takes all the checks of its namespace, and no namespace all checks or all questions. What finds no
// room gets it later.
func TestBounds(t *testing.T) {
	c, check := steady(), tcpCheck()
	if left := c.left(web, check, targets(maxChecksOfService+5), start); left != 5 {
		t.Errorf("%d endpoints find no room, want 5", left)
	}
	if left := fill(c, "shop", "other", maxChecksOfService); left != 0 {
		t.Errorf("%d endpoints of another Service find no room", left)
	}
	if n := len(c.Due(start)); n != maxAsking/2 {
		t.Errorf("%d questions at a time, want %d", n, maxAsking/2)
	}
	foreign := state.Name{Namespace: "bank", Name: "web"}
	if left := c.left(foreign, check, targets(1), start); left != 0 || len(c.Due(start)) != 1 {
		t.Error("another namespace finds no room")
	}
	second := state.Name{Namespace: "shop", Name: "second"}
	if left := c.left(second, check, []probe.Target{target(60_000)}, start); left != 1 {
		t.Error("a full namespace gets more")
	}
	c.Fed()
	c.Set(web, check, targets(10), start)
	if list := c.Fed(); !slices.Contains(list, second) {
		t.Errorf("nobody plans %s again, although there is room: %v", second, list)
	}
	if left := c.left(second, check, []probe.Target{target(60_000)}, start); left != 0 {
		t.Error("there is room, and it is not used")
	}
}

// TestFullTenantsDoNotStarveOthers: two namespaces that take all they can leave room for others. Room comes back, and it is not offered to a namespace that is full and cannot take it.
func TestFullTenantsDoNotStarveOthers(t *testing.T) {
	c, check := steady(), tcpCheck()
	fill(c, "shop", "a", 0)
	fill(c, "shop", "b", maxChecksOfService)
	for i := range 1000 { // more Services of the full namespace
		c.Set(state.Name{Namespace: "shop", Name: fmt.Sprint("svc-", i)}, check, []probe.Target{target(60_000)}, start)
	}
	fill(c, "bank", "a", 0)
	third := state.Name{Namespace: "third", Name: "web"}
	const share = (maxChecks - 3*maxChecksOfService) / 2 // of what the two others leave
	if left := c.left(third, check, targets(share+10), start); left != 10 {
		t.Fatalf("%d endpoints find no room, want 10", left)
	}
	c.Fed()
	c.Set(state.Name{Namespace: "bank", Name: "a"}, check, targets(maxChecksOfService-20), start)
	if list := c.Fed(); !slices.Contains(list, third) {
		t.Errorf("there is room for %s, and %d others are planned again", third, len(list))
	}
}

// TestRates: one namespace asks for more than the node can afford. It gets half of what the node has, evenly, and the check of
// another one is on time.
func TestRates(t *testing.T) {
	const cost = time.Millisecond
	c := checkerAt(cost, func() float64 { return 0 })
	check := tcpCheck()
	check.Interval = time.Second
	c.Set(web, check, targets(1000), start)
	other := state.Name{Namespace: "bank", Name: "web"}
	c.Set(other, check, targets(1), start)
	const seconds = 20
	asked, others := map[probe.Target]int{}, 0
	for now := start; now.Before(start.Add(seconds * time.Second)); now = now.Add(checkPause) {
		for _, q := range c.Due(now) {
			if q.check.of.namespace == other.Namespace {
				others++
			} else {
				asked[q.Target]++
			}
			c.Answered(q, answerIs(true), now)
		}
	}
	sum := 0
	for _, n := range asked {
		if sum += n; n > 2 {
			t.Errorf("one endpoint was asked %d times, and others wait for the first time", n)
		}
	}
	if most := int(tenantRate * float64(seconds*time.Second+rateBurst) / float64(cost)); sum > most+1 || sum < most*9/10 || others != seconds {
		t.Errorf("%d questions of the greedy namespace, at most %d are allowed; %d of the other one, want %d", sum, most, others, seconds)
	}
}

// TestRecalled: what failed before a restart fails until it has answered, for all Services that check it, and is asked first.
func TestRecalled(t *testing.T) {
	c := checkerWith(func() float64 { return 1 })
	check := tcpCheck()
	c.Set(web, check, targets(2), start)
	c.Set(state.Name{Namespace: web.Namespace, Name: "other"}, check, targets(1), start)
	f := state.Failure{Protocol: state.TCP, At: target(0).At, Since: start.Add(-time.Hour)}
	is := c.of(web, check, target(0))
	c.Restore(is, &f, start)
	changed, notes := c.told()
	if _, failing := c.Counts(); len(changed) != 2 || len(notes) > 0 || failing != 1 {
		t.Errorf("changed: %v, told %v; %d fail", changed, notes, failing)
	}
	if is.Fault.Definite() {
		t.Error("after a restart, silence counts as an answer")
	}
	if list := c.Due(start); len(list) != 1 || list[0].Target != target(0) || !is.Down || is.Since != f.Since {
		t.Fatalf("asked are %v; %+v", list, is)
	} else {
		c.Answered(list[0], answerIs(true), start)
	}
	if pause := is.next.Sub(start); pause != check.Interval*11/10 {
		t.Errorf("the next question comes after %s", pause)
	}
	for n := 1; is.Down; n++ {
		if n == int(check.Rise) {
			t.Fatalf("it fails after %d good answers", n)
		}
		now := is.next
		for _, q := range c.Due(now) {
			c.Answered(q, answerIs(true), now)
		}
	}
}

// TestInherit: a check that is shared begins with what the check of one Service has found out, and all its Services look at their endpoints again.
func TestInherit(t *testing.T) {
	c := steady()
	now := time.Unix(1e9, 0)
	x, y := tcpCheck(), tcpCheck()
	y.Timeout *= 2
	a, b := state.Name{Namespace: "shop", Name: "a"}, state.Name{Namespace: "shop", Name: "b"}
	was, _ := c.Set(a, x, targets(2), now)
	was[0].Reached, was[0].Down, was[1].Passed, c.failing = true, true, true, 1
	c.Set(b, y, targets(2), now)
	is, _ := c.Set(a, y, targets(2), now)
	c.told()
	for i := range is {
		c.Inherit(is[i], was[i], now)
	}
	if !is[0].Down || !is[0].Reached || is[0].Passed || !is[1].Passed {
		t.Errorf("inherited: %+v and %+v", is[0], is[1])
	}
	if changed, _ := c.told(); !changed[a] || !changed[b] {
		t.Errorf("told: %v", changed)
	}
}

// TestChangedCheckNeedsNoRoom: the checks of a Service change while its namespace has no room for one more. The new ones get the
// room of those that they replace, while these still know what has failed.
func TestChangedCheckNeedsNoRoom(t *testing.T) {
	const n = maxChecksOfService
	c, all := steady(), targets(2*n)
	for i, name := range []state.Name{web, {Namespace: web.Namespace, Name: "beside"}} { // half of all checks
		if left := c.left(name, tcpCheck(), all[i*n:(i+1)*n], start); left > 0 {
			t.Fatalf("%d have no room", left)
		}
	}
	changed := tcpCheck()
	changed.Timeout *= 2
	if list, left := c.Set(web, changed, all[:n], start); left > 0 || slices.Contains(list, nil) || c.Starves(web) {
		t.Errorf("%d of %d new checks have no room", left, n)
	}
	if used := c.used(); used != 2*n {
		t.Errorf("%d checks", used)
	}
}

// TestRandomChecks does anything in any order. The books are right after each step.
func TestRandomChecks(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		c, now := checkerWith(r.Float64), start
		var open []Question
		for range 300 {
			now = now.Add(time.Duration(r.Int64N(int64(2 * time.Second))))
			switch r.IntN(3) {
			case 0:
				check := tcpCheck()
				check.Fall = uint8(1 + r.IntN(2))
				name := state.Name{Namespace: fmt.Sprint("ns-", r.IntN(2)), Name: fmt.Sprint("svc-", r.IntN(3))}
				c.Set(name, check, targets(r.IntN(5)), now)
			case 1:
				open = append(open, c.Due(now)...)
			case 2:
				n := r.IntN(len(open) + 1)
				for _, q := range open[:n] {
					c.Answered(q, answerIs(r.IntN(2) == 0), now)
				}
				open = open[n:]
			}
			verify(t, c, open)
		}
	}
}

func (c *checker) used() int {
	all, _ := c.Terms[Active].Room.Used("")
	return all
}

// verify checks the books. Open are the questions that have not ended.
func verify(t *testing.T, c *checker, open []Question) {
	t.Helper()
	failing, waiting, checks, asked := 0, 0, 0, map[*endpoint]bool{}
	for _, q := range open {
		asked[q.check.of] = true
	}
	for _, e := range c.endpoints {
		checks += len(e.checks)
		if !asked[e] {
			waiting++
		}
		for _, is := range e.checks {
			if is.Down {
				failing++
			}
			if is.of != e || len(is.users) == 0 {
				t.Fatal("a check has no turns, or no users")
			}
			for name := range is.users {
				if !slices.Contains(c.services[name], is) {
					t.Fatalf("%s uses a check that it does not ask for", name)
				}
			}
		}
	}
	using := 0
	for name, list := range c.services {
		for _, is := range list {
			using++
			if _, used := is.users[name]; !used || c.find(is.of.place, &is.asks) != is {
				t.Fatalf("%s asks for a check that it does not use", name)
			}
		}
	}
	asking, _ := c.Terms[Active].Asking.Used("")
	all, fail := c.Counts()
	if using < all || checks != all || c.used() != all || fail != failing || waiting != c.line.Waiting() || asking != len(open) {
		t.Fatalf("%d checks (%d have turns, %d are counted), %d fail (%d), %d wait (%d), %d asked (%d)",
			all, checks, c.used(), fail, failing, waiting, c.line.Waiting(), asking, len(open))
	}
}

// TestTargetOf: another port is asked by TCP, but by a question of DNS in the protocol of the endpoint.
func TestTargetOf(t *testing.T) {
	at := func(p state.Protocol, port uint16) probe.Target {
		return probe.Target{Protocol: p, At: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)}
	}
	for _, tt := range []struct {
		kind    state.CheckKind
		port    uint16
		is      state.Protocol
		want    probe.Target
		checked bool
	}{
		{state.CheckOff, 0, state.TCP, probe.Target{}, false},
		{state.CheckTCP, 0, state.TCP, at(state.TCP, 80), true},
		{state.CheckTCP, 0, state.UDP, at(state.UDP, 80), false},
		{state.CheckTCP, 90, state.UDP, at(state.TCP, 90), true},
		{state.CheckHTTP, 90, state.SCTP, at(state.TCP, 90), true},
		{state.CheckDNS, 90, state.UDP, at(state.UDP, 90), true},
		{state.CheckDNS, 0, state.UDP, at(state.UDP, 80), true},
		{state.CheckDNS, 90, state.SCTP, at(state.SCTP, 90), false},
	} {
		if got, checked := TargetOf(&state.HealthCheck{Kind: tt.kind, Port: tt.port}, at(tt.is, 80)); got != tt.want || checked != tt.checked {
			t.Errorf("%+v: %+v, %t", tt, got, checked)
		}
	}
	if _, checked := TargetOf(nil, at(state.TCP, 80)); checked {
		t.Error("checked without a check")
	}
}
