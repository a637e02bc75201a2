package flows

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// counter counts what is asked of connection tracking.
type counter struct {
	fail   int
	cleans int
}

func (f *counter) Clean(conntrack.Stale, []netip.Addr) ([]conntrack.Result, error) {
	f.cleans++
	if f.fail > 0 {
		f.fail--
		return nil, errors.New("injected: no buffer space")
	}
	return nil, nil
}

// change has the kernel serve another Service with a UDP port.
func (c *Cleaner) change(i int) {
	svc := &state.Service{
		Name:       state.Name{Namespace: "default", Name: fmt.Sprintf("dns-%d", i)},
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(i + 1)})},
		Ports:      []state.ServicePort{{Name: "dns", Protocol: state.UDP, Port: 53}},
	}
	planned := new(plan.Planner).Plan(svc, nil, &plan.Environment{IPv4: true})
	c.Set(svc.Name, &planned)
	c.RulesApplied(nil)
}

// TestFlowsThatCannotBeRemoved: the kernel refuses for a long time. The log says so once, passes do not start more
// attempts, and everything is removed when the kernel stops refusing.
func TestFlowsThatCannotBeRemoved(t *testing.T) {
	const attempts = 5
	var text strings.Builder
	remover := &counter{fail: attempts}
	cleaner := New(Options{Remover: remover, Log: slog.New(slog.NewTextHandler(&text, nil))})
	for i := range attempts {
		for range 3 {
			cleaner.change(i)
		}
		if cleaner.Done() == nil {
			t.Fatalf("attempt %d: no cleaning is under way", i)
		}
		if cleaner.Finish(<-cleaner.Done()); cleaner.Retry() == nil {
			t.Fatalf("attempt %d is not followed by another one", i)
		}
		if cleaner.change(i + 1); cleaner.Done() != nil {
			t.Fatalf("attempt %d: a cleaning begins before the wait is over", i)
		}
		cleaner.TryAgain()
	}
	if cleaner.backoff != firstRetry<<(attempts-1) {
		t.Errorf("the wait is %v after %d failures, want %v", cleaner.backoff, attempts, firstRetry<<(attempts-1))
	}
	cleaner.Finish(<-cleaner.Done())
	log := text.String()
	if strings.Count(log, "cannot remove stale flows") != 1 || strings.Count(log, "removed again") != 1 {
		t.Errorf("the failure and its end are not logged once each:\n%s", log)
	}
	running, waiting := cleaner.Done() != nil, cleaner.Retry() != nil
	if running || waiting || cleaner.backoff != 0 || remover.cleans != attempts+1 {
		t.Errorf("running %v, waiting %v, backoff %v after %d cleanings", running, waiting, cleaner.backoff, remover.cleans)
	}
}

// waiting is a Remover that waits for a processor.
type waiting struct{ counter }

func (f *waiting) Clean(conntrack.Stale, []netip.Addr) ([]conntrack.Result, error) {
	time.Sleep(time.Minute) // of the test's own clock
	return f.counter.Clean(conntrack.Stale{}, nil)
}

// TestWaitingNeedsNoRest: on a busy node, a cleaning may wait for long until it runs. The next one begins at once.
func TestWaitingNeedsNoRest(t *testing.T) { synctest.Test(t, testWaitingNeedsNoRest) }

func testWaitingNeedsNoRest(t *testing.T) {
	cleaner := New(Options{Remover: &waiting{}, Log: slog.New(slog.DiscardHandler)})
	for i := range 3 {
		cleaner.change(i)
		if cleaner.Done() == nil {
			t.Fatalf("cleaning %d does not begin", i)
		}
		cleaner.Finish(<-cleaner.Done())
	}
}

// TestCleaningsRest: after a cleaning that took long, the next one waits, and then looks at all that changed.
func TestCleaningsRest(t *testing.T) {
	remover := &counter{}
	cleaner := New(Options{Remover: remover, Log: slog.New(slog.DiscardHandler)})
	cleaner.change(0)
	end := <-cleaner.Done()
	cleaner.change(1)
	end.Took = time.Minute
	cleaner.Finish(end)
	cleaner.change(2)
	if cleaner.Done() != nil || cleaner.Retry() == nil || remover.cleans != 1 {
		t.Fatalf("running %v, waiting %v after %d cleanings, want one that waits", cleaner.Done() != nil, cleaner.Retry() != nil, remover.cleans)
	}
	<-cleaner.Retry()
	cleaner.TryAgain()
	if cleaner.Done() == nil {
		t.Fatal("no cleaning is under way after the wait")
	}
	cleaner.Finish(<-cleaner.Done())
	if cleaner.Done() != nil || remover.cleans != 2 {
		t.Errorf("running %v after %d cleanings, want two", cleaner.Done() != nil, remover.cleans)
	}
}

// TestClientsOfFailedEndpointsDoNotRest: connections to an endpoint that is left out are deleted at once, although cleanings for the
// Services of others must rest. Those go on resting.
func TestClientsOfFailedEndpointsDoNotRest(t *testing.T) {
	remover := &counter{}
	cleaner := New(Options{Remover: remover, Log: slog.New(slog.DiscardHandler)})
	finish := func(took time.Duration) {
		t.Helper()
		if cleaner.Done() == nil {
			t.Fatalf("no cleaning is under way after %d", remover.cleans)
		}
		end := <-cleaner.Done()
		end.Took = took
		cleaner.Finish(end)
	}
	fails := func(port uint16) {
		web := plan.Service{
			Choices: []plan.Choice{{Use: plan.LeftOut, Protocol: state.TCP, At: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)}},
			Ports: []plan.Port{{Protocol: state.TCP, Family: state.IPv4, Frontends: []plan.Frontend{
				{Addr: netip.MustParseAddr("10.96.1.1"), Port: 80},
			}}},
		}
		cleaner.Set(state.Name{Namespace: "default", Name: "web"}, &web)
		cleaner.RulesApplied(nil)
	}
	cleaner.change(0)
	finish(time.Minute)
	cleaner.change(1)
	fails(8080)
	finish(0)
	fails(8081)
	finish(time.Minute)
	if fails(8082); cleaner.Done() != nil || cleaner.Retry() == nil || remover.cleans != 3 {
		t.Errorf("running %v, waiting %v after %d cleanings, want one that waits after three",
			cleaner.Done() != nil, cleaner.Retry() != nil, remover.cleans)
	}
}

// TestFewLinesForDeletedConnections: what is not about one object is one line for some time.
func TestFewLinesForDeletedConnections(t *testing.T) { synctest.Test(t, testFewLines) }

func testFewLines(t *testing.T) {
	var text strings.Builder
	c := Cleaner{log: slog.New(slog.NewTextHandler(&text, nil))}
	for range 1000 {
		c.note([]conntrack.Result{{Unanswered: 2}})
		time.Sleep(10 * time.Millisecond) // of the test's own clock
	}
	for part, want := range map[string]int{"were deleted": 10, "connections=200": 9} {
		if n := strings.Count(text.String(), part); n != want {
			t.Errorf("%d lines with %q in 10 seconds, want %d:\n%s", n, part, want, text.String())
		}
	}
}
