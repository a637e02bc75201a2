package activecheck

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

var web = state.Name{Namespace: "shop", Name: "web"}

func target(n int) Target {
	return Target{Protocol: state.TCP, At: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 80)}
}

func targets(n int) (list []Target) {
	for i := range n {
		list = append(list, target(i))
	}
	return list
}

func tcpCheck() *state.HealthCheck {
	return &state.HealthCheck{Kind: state.CheckTCP, Interval: 5 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
}

func steady() *Checker { return New(Settings{Jitter: func() float64 { return 0 }}) }

var start = time.Unix(1_000_000, 0)

// round asks everyone who is due, and gives all the same answer.
func round(c *Checker, good bool, now time.Time) (asked int) {
	list := c.Due(now)
	for _, q := range list {
		c.Answered(q, Result{Good: good, Why: "no"}, now)
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
		down, _, _ := c.Down(web, check, target(0))
		if changed := c.Changed(); down != step.down || (len(changed) > 0) != step.changed || len(c.Notes()) != len(changed) {
			t.Fatalf("step %d: down %t, changed %v; want %+v", i, down, changed, step)
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
	if list := c.Changed(); len(list) != 3 {
		t.Errorf("changed: %v", list)
	}
	c.Set(web, nil, nil, start)
	c.Set(other, check, targets(1), start)
	c.Set(foreign, nil, nil, start)
	if all, failing := c.Counts(); all != 1 || failing != 1 || len(c.turns) != 1 || len(c.ofTenant) != 1 {
		t.Errorf("%d checks, %d of them fail, turns %v, tenants %v", all, failing, c.turns, c.ofTenant)
	}
	if c.Set(other, nil, nil, start); len(c.checks)+len(c.turns)+len(c.ofTenant)+len(c.services)+len(c.waiting)+c.failing > 0 {
		t.Errorf("something stays: %+v", c)
	}
}

// TestTurns: a namespace that writes many questions to one endpoint asks it once in the interval all the same.
func TestTurns(t *testing.T) {
	c := New(Settings{Jitter: rand.New(rand.NewPCG(3, 4)).Float64})
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
			c.Answered(q, Result{Good: true}, now)
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
	c := New(Settings{Jitter: rand.New(rand.NewPCG(1, 2)).Float64})
	c.Set(web, tcpCheck(), targets(5000), start)
	most := 0
	for now := start; now.Before(start.Add(time.Minute)); now = now.Add(10 * time.Millisecond) {
		most = max(most, round(c, true, now))
	}
	if most > 40 { // 10 on average
		t.Errorf("%d questions within 10 ms", most)
	}
}

// TestBounds: a namespace cannot take all the checks, or all the questions. What finds no room gets it later.
func TestBounds(t *testing.T) {
	c, check := steady(), tcpCheck()
	if left := c.Set(web, check, targets(maxChecksOfTenant+5), start); left != 5 {
		t.Errorf("%d endpoints find no room, want 5", left)
	}
	if n := len(c.Due(start)); n != maxAskingOfTenant {
		t.Errorf("%d questions at a time, want %d", n, maxAskingOfTenant)
	}
	foreign := state.Name{Namespace: "bank", Name: "web"}
	if left := c.Set(foreign, check, targets(1), start); left != 0 || len(c.Due(start)) != 1 {
		t.Error("another namespace finds no room")
	}
	second := state.Name{Namespace: "shop", Name: "second"}
	if left := c.Set(second, check, []Target{target(60_000)}, start); left != 1 {
		t.Error("a full namespace gets more")
	}
	c.Changed()
	c.Set(web, check, targets(10), start)
	if list := c.Changed(); !slices.Contains(list, second) {
		t.Errorf("nobody plans %s again, although there is room: %v", second, list)
	}
	if left := c.Set(second, check, []Target{target(60_000)}, start); left != 0 {
		t.Error("there is room, and it is not used")
	}
}

// TestFullTenantsDoNotStarveOthers: room comes back, and it is not offered to a namespace that is full and cannot take it.
func TestFullTenantsDoNotStarveOthers(t *testing.T) {
	c, check := steady(), tcpCheck()
	c.Set(web, check, targets(maxChecksOfTenant), start)
	for i := range 1000 { // more Services of the full namespace
		c.Set(state.Name{Namespace: web.Namespace, Name: fmt.Sprint("svc-", i)}, check, []Target{target(60_000)}, start)
	}
	other := state.Name{Namespace: "bank", Name: "other"}
	c.Set(other, check, targets(maxChecksOfTenant-10), start)
	third := state.Name{Namespace: "third", Name: "web"}
	if left := c.Set(third, check, targets(20), start); left != 10 {
		t.Fatalf("%d endpoints find no room, want 10", left)
	}
	c.Changed()
	c.Set(other, check, targets(maxChecksOfTenant-20), start)
	if list := c.Changed(); !slices.Contains(list, third) {
		t.Errorf("there is room for %s, and %d others are planned again", third, len(list))
	}
}

// TestRandom does anything in any order. The books are right after each step.
func TestRandom(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		c, now := New(Settings{Jitter: r.Float64}), start
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
				for _, q := range open[:r.IntN(len(open)+1)] {
					c.Answered(q, Result{Good: r.IntN(2) == 0}, now)
				}
				open = nil // the others never end
			}
			verify(t, c)
		}
	}
}

func verify(t *testing.T, c *Checker) {
	t.Helper()
	tenants, asking, failing, waiting := map[string]int{}, map[string]int{}, 0, 0
	for k, is := range c.checks {
		tenants[k.namespace]++
		failing += toInt(is.down)
		if is.asking {
			asking[k.namespace]++
		} else if waiting++; c.waiting[is.index] != is {
			t.Fatal("a check is not where it should be in the queue")
		}
		for name := range is.users {
			if svc := c.services[name]; svc == nil || svc.check != k.check || !slices.Contains(svc.targets, k.target) {
				t.Fatalf("%s uses a check that it does not ask for", name)
			}
		}
	}
	all, fail := c.Counts()
	if all != len(c.checks) || fail != failing || waiting != len(c.waiting) || !maps.Equal(tenants, c.ofTenant) || !maps.Equal(asking, c.asking) {
		t.Fatalf("%d checks (%d), %d fail (%d), %d wait (%d), tenants %v (%v), asking %v (%v)",
			all, len(c.checks), fail, failing, len(c.waiting), waiting, c.ofTenant, tenants, c.asking, asking)
	}
}

// BenchmarkDue asks the endpoints of a Service that is larger and larger. What one question costs hardly grows.
func BenchmarkDue(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := New(Settings{Jitter: rand.Float64})
			c.Set(web, tcpCheck(), targets(n), start)
			for b.Loop() {
				round(c, true, c.Next())
			}
		})
	}
}

// BenchmarkSet tells the endpoints of a Service, of which one goes or comes.
func BenchmarkSet(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, list := New(Settings{Jitter: rand.Float64}), targets(n)
			for i := 0; b.Loop(); i++ {
				next := slices.Clone(list)
				if i%2 > 0 {
					next = slices.Delete(next, i%n, i%n+1)
				}
				c.Set(web, tcpCheck(), next, start)
			}
		})
	}
}
