package endpointhealth

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

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
		r.Notes = append(r.Notes, checks.Note{Kind: checks.Fell, Suspect: checks.Suspect{
			At: at(1), Check: checks.Check{Record: checks.Record{Down: true, Fault: probe.NoAnswer}},
			Member: checks.Member{Service: state.Name{Namespace: namespace, Name: "x"}},
		}})
	}
	for range 1000 {
		fails("tenant")
	}
	fails("shop")
	for _, namespace := range []string{"tenant", "shop"} {
		name, list := state.Name{Namespace: namespace, Name: "x"}, []netip.AddrPort{at(1)}
		r.Moves = append(r.Moves, Move{Service: name, Out: list}, Move{Service: name, Back: list})
		r.Notes = append(r.Notes, checks.Note{Kind: checks.CheckFails, Question: &probe.Question{}, Services: []state.Name{name}})
	}
	r.Notes = append(r.Notes, checks.Note{Kind: checks.NetworkLost})
	w.reporter.write(&r)
	for range 1000 {
		w.reporter.write(&Report{left: 1})
	}
	for part, want := range map[string]int{"object=tenant/x": limit, "object=shop/x": 4, string(checks.NetworkLost): 1, "too many endpoints": 1} {
		if n := strings.Count(text.String(), part); n != want {
			t.Errorf("%d lines with %q, want %d", n, part, want)
		}
	}
}

// TestPace: the store gets changes of a large Service at most as often as its size allows, and the last state in the end.
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

// TestPaceOfNamespace: the Services of a namespace share what a namespace may have planned because of flapping endpoints, and
// none of them is forgotten.
func TestPaceOfNamespace(t *testing.T) {
	const services, size, seconds = 8, 12_000, 80
	w := newWorld(t, checksOnly)
	choices := make([]plan.Choice, size)
	for i := range choices {
		choices[i] = plan.Choice{Protocol: state.TCP, At: target(i).At}
	}
	told := map[state.Name]int{}
	for i := range services {
		svc := shop(func(s *state.Service) { s.Name.Name = string(rune('a' + i)) })
		w.Store.SetService(svc, nil)
		w.Set(svc, nil, choices)
		told[svc.Name] = 0
	}
	before, first := map[state.Name]state.Health{}, state.Name{Namespace: web.Namespace, Name: "a"}
	begin := time.Now().Add(time.Hour)
	for now := begin; now.Before(begin.Add(seconds * time.Second)); now = now.Add(time.Second) {
		w.mu.Lock()
		w.flip(first, target(int(now.Sub(begin).Seconds())), now)
		for name := range told { // they share the check
			w.ledger.touch(name)
		}
		w.mu.Unlock()
		w.publish(now)
		for name := range told {
			if h := w.Store.Health(name); !slices.Equal(h, before[name]) {
				told[name]++
				before[name] = h
			}
		}
		if n, want := len(before), int(paceBurst/paceOf(size))+1; now.Equal(begin) && n != want {
			t.Errorf("the store hears of %d Services at once, want %d", n, want)
		}
	}
	sum := 0
	for name, n := range told {
		if sum += n; n == 0 {
			t.Errorf("%s is never told", name)
		}
	}
	if most := int((seconds*time.Second+paceBurst)/paceOf(size)) + 1; sum > most || sum < most*9/10 {
		t.Errorf("the store heard %d changes in %d s, at most %d are allowed", sum, seconds, most)
	}
}

// TestPrice: while the process uses more than checks may use, they cost more, up to eight times as much.
func TestPrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost, allowed = time.Millisecond, 80 * time.Millisecond // in a second
		var used time.Duration
		w := newWorld(t, func(o *Options) {
			o.Cost, o.Used = func(state.CheckKind) time.Duration { return cost }, func() time.Duration { return used }
		})
		for i, step := range []struct {
			after, used time.Duration
			times       int
		}{
			{0, time.Hour, 1}, // before it looked for the first time
			{time.Second, allowed, 1},
			{time.Second, 2 * allowed, 2},
			{pricePause / 2, 100 * allowed, 2}, // too early to say
			{pricePause / 2, 0, 8},
			{time.Second, 2 * allowed, 8},
			{time.Second, allowed / 2, 4},
			{2 * time.Second, allowed, 2},
			{time.Second, 0, 1},
			{time.Second, allowed, 1},
		} {
			<-time.After(step.after)
			used += step.used
			if is := w.checks.Terms[checks.Active].Cost(state.CheckTCP); is.Round(time.Microsecond) != time.Duration(step.times)*cost {
				t.Errorf("step %d: a check costs %s, want %d times %s", i, is, step.times, cost)
			}
		}
	})
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

// TestFormerFrontends: a tenant changes one of the many addresses of his Services again and again, or all of them back and forth. What
// was served lately is kept once, not with each plan.
func TestFormerFrontends(t *testing.T) {
	const services, addresses, plans = 4, 4000, 200
	for name, all := range map[string]int{"one address": 1, "all addresses": addresses} {
		synctest.Test(t, func(t *testing.T) {
			w, list := newWorld(t, func(*Options) {}), make([]span, addresses)
			serve := func(i int) {
				for j := range list {
					list[j] = span{numbered(j, uint16(i%services)), 80}
					if j < all && i/services%2 == 1 {
						list[j] = span{numbered(addresses+j, uint16(i%services)), 80}
					}
				}
				w.permit.serve(state.Name{Namespace: "tenant", Name: string(rune('a' + i%services))}, slices.Clone(list))
			}
			heap := func() uint64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			for i := range 2 * services { // all there will be
				serve(i)
			}
			before := heap()
			for i := range plans {
				serve(i)
			}
			more := int64(heap()) - int64(before)
			t.Logf("%s: %d bytes more", name, more)
			uses := func() int {
				w.permit.mu.Lock()
				defer w.permit.mu.Unlock()
				return len(w.permit.uses)
			}
			if more > 4<<20 || uses() != services*(addresses+all) {
				t.Errorf("%s: %d bytes more after %d plans, %d uses", name, more, plans, uses())
			}
			<-time.After(3 * lingering)
			synctest.Wait()
			if n := uses(); n != services*addresses {
				t.Errorf("%s: %d uses are left, want %d", name, n, services*addresses)
			}
		})
	}
}

// TestIdleMonitorRests: a Monitor that asks nobody wakes up for its looks only. One that asks looks as often.
func TestIdleMonitorRests(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			looks := 0
			w := newWorld(t, func(o *Options) {
				o.Suspicions = func(bool) ([]Suspicion, error) { looks++; return nil, nil }
			})
			want := noticePeriod
			if busy {
				check, _ := state.ParseHealthCheck("tcp")
				w.serve(&state.Service{Name: state.Name{Namespace: "shop", Name: "web"}, Check: &check}, []netip.AddrPort{at(1)}, nil)
				want = checkPause
			}
			if got := w.pause(); got != want {
				t.Errorf("busy %v: it rests for %v, want %v", busy, got, want)
			}
			ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
			defer end()
			if err := w.Run(ctx); err != nil || looks != 50 {
				t.Errorf("busy %v: %d looks in 10 s, error %v; want 50", busy, looks, err)
			}
		})
	}
}
