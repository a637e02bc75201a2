package proxier

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// All times in these tests are those of a synctest bubble: exact.

// inBubble runs a loop that is synced with one Service and idle.
func inBubble(t *testing.T, takes time.Duration, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pace.minPeriod = config.Default().MinSyncPeriod
		w.rules.takes = takes
		w.store.SetService(service("web", "10.96.0.1", 1), nil)
		w.store.MarkSynced()
		stop := w.start(t)
		settle()
		w.watcher.passes = nil
		test(t, w)
		stop()
	})
}

// start runs the loop until stop is called.
func (w *world) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// settle waits until there is nothing left to do for the loop.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// change puts another endpoint into the slice of the Service.
func (w *world) change(i int) {
	w.store.SetSlice(slice("web", netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String()), nil)
}

func TestIdleProxyAppliesAtOnce(t *testing.T) {
	if config.Default().MinSyncPeriod != 10*time.Millisecond {
		t.Fatalf("--min-sync-period is %s by default, want 10 ms", config.Default().MinSyncPeriod)
	}
	inBubble(t, 0, func(t *testing.T, w *world) {
		for i := range 3 {
			start := time.Now()
			w.change(i)
			synctest.Wait()
			if got := w.watcher.passes; len(got) != i+1 || !got[i].Started.Equal(start) {
				t.Fatalf("change %d: passes %+v, want one at %s", i, got, start)
			}
			time.Sleep(11 * time.Millisecond)
		}
	})
}

// TestStreamIsGathered: the first change of a stream meets an idle proxy, the others wait for each other, but not
// longer than the period, or than the pass before them takes.
func TestStreamIsGathered(t *testing.T) {
	for _, tt := range []struct {
		name   string
		takes  time.Duration
		passes int
		apart  time.Duration // pass to pass
	}{
		{"a fast kernel", time.Millisecond, 11, 10 * time.Millisecond},
		{"a kernel that takes longer than the period", 25 * time.Millisecond, 5, 25 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.takes, func(t *testing.T, w *world) {
				for i := range 200 { // in 100 ms
					w.change(i)
					time.Sleep(500 * time.Microsecond)
				}
				settle()
				passes := w.watcher.passes
				if len(passes) != tt.passes {
					t.Fatalf("%d passes, want %d", len(passes), tt.passes)
				}
				for i, p := range passes[1:] {
					if got := p.Started.Sub(passes[i].Started); got != tt.apart {
						t.Errorf("pass %d began %s after the one before it, want %s", i+1, got, tt.apart)
					}
				}
			})
		})
	}
}

// TestRolloutIsAHandfulOfPasses: changes that come faster than anything can be applied.
func TestRolloutIsAHandfulOfPasses(t *testing.T) {
	inBubble(t, 5*time.Millisecond, func(t *testing.T, w *world) {
		for i := range 1000 {
			w.change(i)
		}
		settle()
		if n := len(w.watcher.passes); n < 1 || n > 3 {
			t.Errorf("%d passes for 1,000 changes, want one to three", n)
		}
		if got := w.rules.endpoints(t, "default/web:http"); len(got) != 1 || got[0] != "10.0.3.231:8080" {
			t.Errorf("endpoints %v, want those of the last change", got)
		}
	})
}

// TestTriggersAreReportedWhenTheKernelHasThem: a change whose first pass fails is late, which is what the histogram is
// for.
func TestTriggersAreReportedWhenTheKernelHasThem(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		at := time.Now()
		triggered := func(i int) {
			sl := slice("web", "10.0.0.1", netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}).String())
			sl.Trigger = at
			w.store.SetSlice(sl, nil)
		}
		w.rules.fail = 2
		triggered(1)
		settle()
		var got []report.Trigger
		for _, p := range w.watcher.passes {
			if p.Result.Err == nil {
				got = append(got, p.Triggers...)
			}
		}
		if len(got) != 1 || got[0] != (report.Trigger{Family: state.IPv4, At: at}) {
			t.Errorf("triggers of passes that applied: %v, want one at %s", got, at)
		}
		w.watcher.passes = nil
		triggered(2) // by something else than the controller: the annotation stays
		settle()
		if p := w.watcher.passes; len(p) != 1 || len(p[0].Triggers) != 0 {
			t.Errorf("passes %+v, want one without a trigger", p)
		}
	})
}

// TestRetriesGoOnAndBackOff: the looks that the loop takes every second do not keep a retry from coming, and changes do
// not have a kernel that refuses everything asked all the time.
func TestRetriesGoOnAndBackOff(t *testing.T) {
	inBubble(t, time.Millisecond, func(t *testing.T, w *world) {
		const failures = 9
		w.rules.mu.Lock()
		w.rules.fail, w.rules.applies = failures, 0
		w.rules.mu.Unlock()
		begin := time.Now()
		for i := range 4000 { // a change each 10 ms, for 40 s
			w.change(i)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		passes := w.watcher.passes
		if len(passes) <= failures || passes[failures-1].Result.Err == nil || passes[failures].Result.Err != nil {
			t.Fatalf("%d passes, want %d failures and then success", len(passes), failures)
		}
		wait := firstRetry
		for i := range failures {
			end := passes[i].Started.Add(passes[i].Duration)
			if got := passes[i+1].Started.Sub(end); got < wait || got > wait+20*time.Millisecond {
				t.Errorf("after failure %d the next pass came after %s, want %s", i+1, got, wait)
			}
			wait = min(2*wait, maxRetry)
		}
		if got := strings.Count(w.log.String(), "level=ERROR"); got != 1 {
			t.Errorf("the same error was logged %d times within %s, want once a minute", got, time.Since(begin))
		}
	})
	inBubble(t, time.Millisecond, func(t *testing.T, w *world) {
		w.rules.mu.Lock()
		w.rules.fail = 20
		w.rules.mu.Unlock()
		w.change(1)
		time.Sleep(3*time.Minute + time.Second)
		synctest.Wait()
		if last := w.watcher.passes[len(w.watcher.passes)-1]; last.Result.Err != nil {
			t.Errorf("%d passes, the last one failed: %v; nothing else changed", len(w.watcher.passes), last.Result.Err)
		}
		if got := strings.Count(w.log.String(), "level=ERROR"); got < 2 || got > 4 {
			t.Errorf("the same error was logged %d times in 3 minutes, want once a minute", got)
		}
	})
}

// TestChangeOfAnotherTenantHasItsOwnPass: a tenant changes more than fits into a pass. The change of another one goes to
// the kernel alone, before the rest.
func TestChangeOfAnotherTenantHasItsOwnPass(t *testing.T) {
	w := newWorld(t)
	w.store.MarkSynced()
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * planSize {
		svc := service(fmt.Sprint("s", i), netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}).String(), 1)
		svc.Namespace = "tenant"
		w.store.SetService(svc, nil)
	}
	w.watcher.passes = nil
	for range 2 {
		if err := w.pass(); err != nil {
			t.Fatal(err)
		}
		w.store.SetService(service("web", "10.96.0.1", 1), nil)
	}
	if got := w.watcher.passes; len(got) != 2 || got[1].Services != 1 || !w.continues() {
		t.Errorf("passes %+v, want the second one to have one Service, and a third one to come", got)
	}
}

// TestTablesLeaveBetweenChanges: the hash tables of deleted Services go in pieces, without a change of anybody. A change of
// another Service goes between two pieces, and the deleted ones pay.
func TestTablesLeaveBetweenChanges(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		var names []state.Name
		for i := range 12 {
			names = append(names, w.hashed(i))
		}
		slots := func() (n int) {
			for _, s := range w.rules.Elements() {
				if s.Set == program.HashSlots {
					n += s.Elements
				}
			}
			return n
		}
		const all = 12 * 4093
		if settle(); slots() != all {
			t.Fatalf("%d slots, want %d", slots(), all)
		}
		w.watcher.passes = nil
		for _, name := range names {
			w.store.DeleteService(name)
		}
		time.Sleep(3 * piecePause)
		w.change(7)
		time.Sleep(w.pace.minPeriod)
		synctest.Wait() // the pass begins at the same time
		if at := w.rules.endpoints(t, "default/web:http"); len(at) != 1 || slots() < all/2 {
			t.Errorf("the other Service has the endpoints %v when %d slots are left", at, slots())
		}
		for range all/1000/int(time.Second/(2*piecePause)) + 1 {
			settle()
		}
		paid, most := 0, 0
		for _, p := range w.watcher.passes {
			for _, n := range p.Result.Changed {
				paid += n.Sum()
			}
			most = max(most, p.Result.Deleted)
		}
		if paid < all || paid > all+100 || most > 1100 || slots() != 0 { // they also pay for their other elements
			t.Errorf("they pay for %d slots, a pass deletes up to %d elements, and %d are left", paid, most, slots())
		}
	})
}
