package flows

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// counter counts what is asked of connection tracking.
type counter struct {
	mu     sync.Mutex
	fail   int
	cleans int
	of     map[string]int // cleanings of each namespace
}

func (f *counter) Clean(s conntrack.Stale, _ []netip.Addr) ([]conntrack.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleans++
	for namespace := range s.Causes(0) {
		if f.of != nil {
			f.of[namespace]++
		}
	}
	if f.fail > 0 {
		f.fail--
		return nil, errors.New("injected: no buffer space")
	}
	return nil, nil
}

// change has the kernel serve another Service with a UDP port.
func (c *Cleaner) change(i int) { c.changeOf("default", i) }

func (c *Cleaner) changeOf(namespace string, i int) {
	svc := &state.Service{
		Name:       state.Name{Namespace: namespace, Name: fmt.Sprintf("dns-%d", i)},
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte((i + 1) >> 8), byte(i + 1)})},
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
			Choices: []plan.Choice{{Use: plan.Ejected, Protocol: state.TCP, At: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)}},
			Ports: []plan.Port{{Protocol: state.TCP, Family: state.IPv4, Frontends: []plan.Frontend{
				{Frontend: serviceport.Frontend{Addr: netip.MustParseAddr("10.96.1.1"), Port: 80}},
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

// TestTenantDelaysItself: the cleanings of a tenant take 900 ms each, and it changes something five times a second for half a
// minute. It waits after each one, and what it changed in the meantime is cleaned at once. Others are cleaned at once.
func TestTenantDelaysItself(t *testing.T) { synctest.Test(t, testTenantDelaysItself) }

func testTenantDelaysItself(t *testing.T) {
	const seconds, often = 30, 5
	remover := &counter{of: map[string]int{}}
	cleaner := New(Options{Remover: remover, Log: slog.New(slog.DiscardHandler)})
	changes := 0
	change := func(namespace string, took time.Duration) {
		changes++
		for cleaner.changeOf(namespace, changes); cleaner.Done() != nil; {
			end := <-cleaner.Done()
			end.Took = took
			cleaner.Finish(end)
		}
	}
	for i := range seconds * often {
		change("hostile", 900*time.Millisecond)
		if i%often == 0 {
			change("shop", 20*time.Millisecond)
			change("kube-system", 20*time.Millisecond)
		}
		if n := i/often + 1; remover.of["shop"] != n || remover.of["kube-system"] != n {
			t.Fatalf("after %d changes: cleaned %v", n, remover.of)
		}
		time.Sleep(time.Second / often) // of the test's own clock
		select {
		case <-cleaner.Retry():
			cleaner.TryAgain()
		default:
		}
	}
	time.Sleep(maxRest)
	change("default", 0)
	if n, most := remover.of["hostile"], int(seconds*time.Second/maxRest)+2; n < 2 || n > most {
		t.Errorf("the tenant was cleaned %d times, want at most %d", n, most)
	}
	if len(cleaner.share.of) > 2 {
		t.Errorf("namespaces that have made up for their cleanings are remembered: %v", cleaner.share.of)
	}
}

// TestManyTenants: forty namespaces change something all the time, and a cleaning takes 400 ms. Cleanings take a quarter of the
// time, and another namespace waits for a rest and two cleanings at most.
func TestManyTenants(t *testing.T) { synctest.Test(t, testManyTenants) }

func testManyTenants(t *testing.T) {
	const tenants, took, during = 40, 400 * time.Millisecond, time.Minute
	remover := &counter{of: map[string]int{}}
	cleaner := New(Options{Remover: remover, Log: slog.New(slog.DiscardHandler)})
	began, changed, cleaned, cleans, changes := time.Now(), time.Now(), 0, 0, 0
	for time.Since(began) < during {
		for i := range tenants {
			changes++
			cleaner.changeOf(fmt.Sprint("tenant-", i), changes)
		}
		changes++
		cleaner.changeOf("shop", changes)
		select {
		case end := <-cleaner.Done():
			time.Sleep(took) // of the test's own clock
			end.Took, cleans = took, remover.cleans
			if n := remover.of["shop"]; n > cleaned {
				cleaned, changed = n, time.Now()
			}
			cleaner.Finish(end)
		case <-cleaner.Retry():
			cleaner.TryAgain()
		case <-time.After(took):
		}
		if waited := time.Since(changed); waited > 7*took {
			t.Fatalf("another namespace waits for %s", waited)
		}
	}
	if total := time.Duration(cleans) * took; total > time.Duration(allShare*float64(during))+allBurst+took {
		t.Errorf("%d cleanings took %s of %s", cleans, total, during)
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

// TestLooksAreShared: tenants make endpoints come and go all the time. There is one look in a second for all of them, and each is
// charged its part: a tenant whose looks take a second waits after each one. Nothing is cleaned when endpoints only come.
func TestLooksAreShared(t *testing.T) { synctest.Test(t, testLooksAreShared) }

func testLooksAreShared(t *testing.T) {
	const seconds, often = 60, 10
	remover := &counter{of: map[string]int{}}
	cleaner := New(Options{Remover: remover, Log: slog.New(slog.DiscardHandler)})
	set := func(namespace string, endpoints ...byte) {
		web, sl := state.Name{Namespace: namespace, Name: "web"}, &state.Slice{Ports: []state.SlicePort{{Port: 80}}}
		for _, i := range endpoints {
			sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, i}), Ready: true})
		}
		svc := &state.Service{Name: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []state.ServicePort{{Port: 80}}}
		planned := new(plan.Planner).Plan(svc, []*state.Slice{sl}, &plan.Environment{IPv4: true})
		cleaner.Set(web, &planned, sl)
		cleaner.RulesApplied(nil)
	}
	pass := func(d, took time.Duration) {
		for end, over := time.After(d), false; !over || cleaner.Done() != nil; {
			select {
			case c := <-cleaner.Done():
				c.Took = took
				cleaner.Finish(c)
			case <-cleaner.Retry():
				cleaner.TryAgain()
			case <-end:
				over = true
			}
		}
	}
	for i := range seconds * often {
		for tenant := range 5 {
			set(fmt.Sprint("hostile-", tenant), byte(i%2))
		}
		if i%(2*often) == 0 {
			set("shop", byte(i))
		}
		pass(time.Second/often, 100*time.Millisecond)
	}
	if remover.cleans > seconds+1 || remover.cleans < seconds-1 {
		t.Errorf("%d looks in %d seconds", remover.cleans, seconds)
	}
	if n, want := remover.of["shop"], seconds/2; n < want-1 {
		t.Errorf("%d of %d changes of a quiet namespace were looked at", n, want)
	}
	before := remover.of["hostile-0"]
	for i := range seconds * often {
		set("hostile-0", byte(i%2))
		pass(time.Second/often, time.Second)
	}
	if n, most := remover.of["hostile-0"]-before, int(seconds*time.Second/maxRest)+2; n > most || n < 2 {
		t.Errorf("a tenant whose looks take long was looked at %d times, want %d at most", n, most)
	}
	set("shop", 1)
	pass(2*maxRest, 0)
	cleans := remover.cleans
	for i := range byte(20) {
		set("shop", append([]byte{1}, make([]byte, i)...)...)
		pass(time.Second, 0)
	}
	if remover.cleans != cleans {
		t.Errorf("%d looks although endpoints only came", remover.cleans-cleans)
	}
}

// lengthy is a remover whose cleanings of hostile namespaces end when the test says so, or when others wait.
type lengthy struct {
	counter
	begun, hurried chan string
}

func (l *lengthy) Clean(stale conntrack.Stale, nodePorts []netip.Addr) ([]conntrack.Result, error) {
	_, _ = l.counter.Clean(stale, nodePorts)
	for namespace := range stale.Causes(0) {
		if l.begun <- namespace; !strings.HasPrefix(namespace, "hostile") {
			continue
		}
		for range l.hurried {
			if stale.Hurried() {
				return nil, conntrack.ErrHurried
			}
		}
	}
	return nil, nil
}

// TestOthersDoNotWaitForACleaning: while a cleaning takes long, another namespace is cleaned beside it, but not the same one twice. When
// there are enough at a time, they end early, and what was left comes when their namespaces have a share again.
func TestOthersDoNotWaitForACleaning(t *testing.T) { synctest.Test(t, testOthersDoNotWait) }

func testOthersDoNotWait(t *testing.T) {
	remover := &lengthy{counter: counter{of: map[string]int{}}, begun: make(chan string, 1), hurried: make(chan string)}
	cleaner := New(Options{Remover: remover, Log: slog.New(slog.DiscardHandler)})
	begins := func(want string) {
		t.Helper()
		got := ""
		synctest.Wait()
		select {
		case got = <-remover.begun:
		default:
		}
		if got != want {
			t.Fatalf("a cleaning of %q begins, want %q", got, want)
		}
	}
	again := func() { <-cleaner.Retry(); cleaner.TryAgain() }
	cleaner.changeOf("hostile-1", 1)
	begins("hostile-1")
	cleaner.changeOf("hostile-1", 2)
	cleaner.changeOf("shop", 3)
	begins("") // the first one may be brief
	again()
	begins("shop")
	cleaner.Finish(<-cleaner.Done())
	for i := range 3 {
		cleaner.changeOf(fmt.Sprint("hostile-", 2+i), 4+i)
		if i > 0 {
			again()
		}
		begins(fmt.Sprint("hostile-", 2+i))
	}
	cleaner.changeOf("shop", 8)
	again()
	begins("")
	for range cleaner.running {
		remover.hurried <- ""
	}
	synctest.Wait()
	for range 4 {
		end := <-cleaner.Done()
		end.Took = time.Second // so that it has used its share up
		cleaner.Finish(end)
	}
	begins("shop")
	cleaner.Finish(<-cleaner.Done())
	if begins(""); cleaner.Done() != nil || cleaner.Retry() == nil {
		t.Error("what was left is forgotten, or does not wait for its share")
	}
	close(remover.hurried)
}
