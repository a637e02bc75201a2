package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/planning"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func TestNothingHappensBeforeSync(t *testing.T) {
	w := newWorld(t)
	w.store.SetService(service("web", "10.96.0.1", 1), nil)
	if err := w.Once(); err != nil || w.rules.applies != 0 {
		t.Fatalf("before the sources are synced: error %v, %d applies; want none", err, w.rules.applies)
	}
	w.store.MarkSynced()
	if err := w.Once(); err != nil || w.rules.applies != 1 || len(w.rules.frontends(t)) != 1 {
		t.Fatalf("after: error %v, %d applies, %d ports; want one of each", err, w.rules.applies, len(w.rules.frontends(t)))
	}
}

// TestNothingWaitsBeforeSync: while the API server is away, nothing waits for the loop. Otherwise the kubelet would
// restart the proxy until the API server is back.
func TestNothingWaitsBeforeSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.SetService(service("web", "10.96.0.1", 1), nil)
		stop := w.start(t)
		settle() // the loop has taken the wake-up
		synced := time.Now()
		w.store.MarkSynced()
		settle()
		if len(w.rules.frontends(t)) == 0 {
			t.Error("the loop does not apply what waited for the sources")
		}
		stop()
		if len(w.watcher.pending) == 0 || w.watcher.pending[0].Before(synced) {
			t.Errorf("waiting since %v, but the sources were synced at %v", w.watcher.pending, synced)
		}
	})
}

func TestChangesStayPendingUntilApplied(t *testing.T) {
	w := newWorld(t)
	w.store.SetService(service("web", "10.96.0.1", 1), nil)
	w.store.MarkSynced()
	w.rules.fail = 2
	for i := range 2 {
		if err := w.Once(); err == nil {
			t.Fatalf("pass %d: no error although the kernel refused", i)
		}
		if w.pendingServices() != 1 {
			t.Fatalf("pass %d: the change was forgotten although the kernel refused it", i)
		}
	}
	if n := strings.Count(w.log.String(), "pass not applied"); n != 1 {
		t.Errorf("the same failure was logged %d times, want once:\n%s", n, w.log)
	}
	if err := w.Once(); err != nil || w.pendingServices() != 0 {
		t.Fatalf("error %v, %d Services pending; want neither", err, w.pendingServices())
	}
	if !strings.Contains(w.log.String(), "passes apply again") {
		t.Errorf("recovery was not logged:\n%s", w.log)
	}
}

// TestInterferenceWaitsForAPass: what another process does while passes fail is undone when a pass is in the kernel. The
// failures need not have been those of nft, so the pass need not write everything.
func TestInterferenceWaitsForAPass(t *testing.T) {
	w := newWorld(t)
	w.store.MarkSynced()
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	w.store.SetService(service("web", "10.96.0.1", 1), nil)
	w.rules.fail = 1
	if err := w.Once(); err == nil {
		t.Fatal("no error although the kernel refused")
	}
	for range 2 {
		w.repairs.repair(dataplane.Interference{Process: "nft", Lost: true})
	}
	if w.rules.repairs != 0 {
		t.Fatalf("%d repairs while the kernel refuses everything", w.rules.repairs)
	}
	for range 2 {
		if err := w.Once(); err != nil {
			t.Fatal(err)
		}
		if w.rules.repairs != 1 {
			t.Fatalf("%d repairs after a pass that is in the kernel; want one for all", w.rules.repairs)
		}
	}
}

func TestOnlyChangedServicesArePlanned(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		w.store.SetService(service(name, "10.96.0.1"+string(name[0]-'a'+'0'), 1), nil)
	}
	w.store.MarkSynced()
	steps := []struct {
		name   string
		change func()
		want   int
	}{
		{"first", func() {}, 3},
		{"nothing", func() {}, 0},
		{"one slice", func() { w.store.SetSlice(slice("b", "10.0.0.1"), nil) }, 1},
		{"a Service gone", func() { w.store.DeleteService(state.Name{Namespace: "default", Name: "c"}) }, 1},
		{"host addresses", func() { w.store.SetHostAddresses([]netip.Addr{netip.MustParseAddr("192.0.2.9")}) }, 0},
		{"the node's zone", func() { w.store.SetNode(&state.Node{Name: "n1", Zone: "z1"}, nil) }, 2},
	}
	for _, s := range steps {
		s.change()
		if err := w.Once(); err != nil {
			t.Fatal(err)
		}
		if got := w.watcher.passes[len(w.watcher.passes)-1].Services; got != s.want {
			t.Errorf("%s: %d Services planned, want %d", s.name, got, s.want)
		}
	}
	if _, left := w.rules.frontends(t)["default/c:http"]; left {
		t.Error("the port of a removed Service is still there")
	}
}

func TestClashMovesInOnePass(t *testing.T) {
	w := newWorld(t)
	w.store.SetService(service("young", "10.96.0.2", 20, "192.0.2.1"), nil)
	w.store.MarkSynced()
	check := func(step string, young, old []string) {
		t.Helper()
		if err := w.Once(); err != nil {
			t.Fatal(err)
		}
		if got := w.rules.frontends(t)["default/young:http"]; !slices.Equal(got, young) {
			t.Errorf("%s: young has %v, want %v", step, got, young)
		}
		if got := w.rules.frontends(t)["default/old:http"]; !slices.Equal(got, old) {
			t.Errorf("%s: old has %v, want %v", step, got, old)
		}
	}
	check("alone", []string{"10.96.0.2", "192.0.2.1"}, nil)
	w.store.SetService(service("old", "10.96.0.3", 10, "192.0.2.1"), nil)
	check("an older Service claims the address", []string{"10.96.0.2"}, []string{"10.96.0.3", "192.0.2.1"})
	if len(w.watcher.problems) != 1 || w.watcher.problems[0].Object.Name != "young" {
		t.Errorf("problems %v, want one of default/young", w.watcher.problems)
	}
	w.store.DeleteService(state.Name{Namespace: "default", Name: "old"})
	check("it goes away", []string{"10.96.0.2", "192.0.2.1"}, nil)
	if len(w.watcher.problems) != 0 {
		t.Errorf("problems %v, want none", w.watcher.problems)
	}
}

func TestLimitHarmsOnlyItsPort(t *testing.T) {
	w := newWorld(t)
	w.rules.limit = "default/big:http"
	w.store.SetService(service("big", "10.96.0.1", 1), nil)
	w.store.SetService(service("web", "10.96.0.2", 1), nil)
	w.store.MarkSynced()
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	if ports := w.rules.frontends(t); len(ports) != 1 || len(w.watcher.problems) != 1 || w.watcher.problems[0].Object.Name != "big" {
		t.Fatalf("%d ports, problems %v; want the other port and one problem of default/big", len(ports), w.watcher.problems)
	}
	if !strings.Contains(w.log.String(), "object=default/big") || !strings.Contains(w.log.String(), "too many endpoints") {
		t.Errorf("log names neither object nor reason:\n%s", w.log)
	}
}

func TestRunRetriesAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.rules.fail = 2
		w.store.SetService(service("web", "10.96.0.1", 1), nil)
		stop := w.start(t)
		w.store.MarkSynced()
		settle()
		if len(w.rules.frontends(t)) == 0 {
			t.Error("the loop never got its change into the kernel")
		}
		stop()
		if len(w.watcher.pending) == 0 {
			t.Error("the observer never heard that changes were waiting")
		}
	})
}

func TestFlowsAreCleanedAfterTheRules(t *testing.T) {
	w := newWorld(t)
	dns := service("dns", "10.96.0.53", 1)
	dns.Ports = []state.ServicePort{{Name: "dns", Protocol: state.UDP, Port: 53}}
	w.store.SetService(dns, nil)
	w.store.MarkSynced()
	w.rules.fail = 1
	if err := w.Once(); err == nil || w.Proxier.flows.Done() != nil {
		t.Fatalf("error %v, cleaning %v; want an error and no cleaning: the old rules are still in force", err, w.Proxier.flows.Done() != nil)
	}
	w.flows.fail = 1
	if err := w.Once(); err != nil || w.Proxier.flows.Done() == nil {
		t.Fatalf("error %v, cleaning %v; want a cleaning under way", err, w.Proxier.flows.Done() != nil)
	}
	cleaner := w.Proxier.flows
	if cleaner.Finish(<-cleaner.Done()); cleaner.Retry() == nil {
		t.Fatal("a cleaning that failed is not tried again")
	}
	cleaner.TryAgain()
	if cleaner.Finish(<-cleaner.Done()); cleaner.Retry() != nil || cleaner.Done() != nil || w.flows.cleans != 2 {
		t.Fatalf("cleaning %v after %d cleanings; want none under way after 2", cleaner.Done() != nil, w.flows.cleans)
	}
	if err := w.Once(); err != nil || cleaner.Done() != nil {
		t.Fatalf("error %v, cleaning %v although nothing changed", err, cleaner.Done() != nil)
	}
}

// TestManyServices: more than fit into a chunk. Each is set once, also when the environment changes together with some
// of them: an engine that sees a port change twice has to write everything.
func TestManyServices(t *testing.T) {
	w := newWorld(t)
	const n = 2*planning.ChunkSize + 10
	for i := range n {
		name := fmt.Sprintf("s%d", i)
		w.store.SetService(service(name, fmt.Sprintf("10.96.%d.%d", i/250, i%250+1), 1), nil)
	}
	w.store.MarkSynced()
	steps := []struct {
		name   string
		change func()
		ports  int
	}{
		{"all", func() {}, n},
		{"the node's zone, a new slice, a Service gone", func() {
			w.store.SetNode(&state.Node{Name: "n1", Zone: "z1"}, nil)
			w.store.SetSlice(slice("s7", "10.0.0.1"), nil)
			w.store.DeleteService(state.Name{Namespace: "default", Name: "s8"})
		}, n - 1},
	}
	for _, s := range steps {
		s.change()
		clear(w.rules.sets)
		if err := w.Once(); err != nil {
			t.Fatal(err)
		}
		if applied := len(w.rules.frontends(t)); applied != s.ports || len(w.rules.sets) != s.ports {
			t.Errorf("%s: %d ports applied, %d set; want %d", s.name, applied, len(w.rules.sets), s.ports)
		}
		for port, times := range w.rules.sets {
			if times != 1 {
				t.Fatalf("%s: %s was set %d times, want once", s.name, port, times)
			}
		}
	}
}

// TestClashAcrossChunks: a Service of one chunk takes a frontend from one of another, whichever is planned first.
func TestClashAcrossChunks(t *testing.T) {
	w := newWorld(t)
	const pairs = planning.ChunkSize
	names := func(i int) (old, young string) {
		old, young = fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i) // in the order in which they are planned
		if i%2 == 1 {
			return young, old
		}
		return old, young
	}
	for i := range pairs {
		vip := fmt.Sprintf("192.0.%d.%d", i/250, i%250+1)
		old, young := names(i)
		w.store.SetService(service(old, fmt.Sprintf("10.96.%d.%d", i/250, i%250+1), 1, vip), nil)
		w.store.SetService(service(young, fmt.Sprintf("10.97.%d.%d", i/250, i%250+1), 2, vip), nil)
	}
	w.store.MarkSynced()
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	frontends := w.rules.frontends(t)
	for i := range pairs {
		old, young := names(i)
		if old, young := frontends["default/"+old+":http"], frontends["default/"+young+":http"]; len(old) != 2 || len(young) != 1 {
			t.Fatalf("pair %d: the older has %v, the younger %v; want the address with the older only", i, old, young)
		}
	}
	if len(w.watcher.problems) != pairs {
		t.Errorf("%d problems, want one for each younger Service: %d", len(w.watcher.problems), pairs)
	}
}

// TestSameObjectsGiveSameRules: the numbers of pools do not depend on chance, nor on the order in which objects arrive.
func TestSameObjectsGiveSameRules(t *testing.T) {
	var texts []string
	for _, step := range []int{1, 7} {
		w := newWorld(t)
		const n = planning.ChunkSize + 11
		for i := range n {
			name := fmt.Sprintf("s%d", i*step%n)
			w.store.SetService(service(name, fmt.Sprintf("10.96.%d.%d", i*step%n/250, i*step%n%250+1), 1), nil)
			w.store.SetSlice(slice(name, "10.0.0.1", "10.0.0.2"), nil)
		}
		w.store.MarkSynced()
		if err := w.Once(); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, w.rules.kernel.String())
	}
	if texts[0] != texts[1] {
		t.Errorf("the same objects give different rules:\n%s", cmp.Diff(strings.Split(texts[0], "\n"), strings.Split(texts[1], "\n")))
	}
}

// TestReconfigure: the loop takes over settings while it runs, and a pass applies them although no object has changed.
func TestReconfigure(t *testing.T) {
	w := newWorld(t)
	w.store.MarkSynced()
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	next := *w.settings
	next.MinSyncPeriod, next.MasqueradeAll = 33*time.Millisecond, true
	w.reconfigure(&next)
	if err := w.Once(); err != nil || !w.passes.node.Shared.MasqueradeAll || w.pace.minPeriod != next.MinSyncPeriod {
		t.Errorf("error %v, environment %+v, period %s", err, w.passes.node.Shared, w.pace.minPeriod)
	}
}

// TestFewLinesForOneService: a Service whose problems fill a screen does not fill the log.
func TestFewLinesForOneService(t *testing.T) {
	w := newWorld(t)
	var external []string
	for i := range 100 {
		external = append(external, fmt.Sprint("203.0.113.", i))
	}
	w.store.SetService(service("winner", "10.96.0.1", 1, external...), nil)
	w.store.SetService(service("loser", "10.96.0.2", 2, external...), nil)
	w.store.MarkSynced()
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(w.log.String(), "cannot be honored in full"); n != state.MaxProblems+1 {
		t.Errorf("%d lines in the log, want %d", n, state.MaxProblems+1)
	}
	if !strings.Contains(w.log.String(), "and 92 more problems") {
		t.Error("the log does not count the other problems")
	}
}

// TestRefusedPortIsReported: the kernel refuses a port, and then fails for another reason. The next pass serves the others, and
// reports that this port is not served.
func TestRefusedPortIsReported(t *testing.T) {
	w := newWorld(t)
	w.store.SetService(service("web", "10.96.0.1", 1), nil)
	w.store.SetService(service("mail", "10.96.0.2", 1), nil)
	w.store.MarkSynced()
	w.rules.blame, w.rules.fail = "default/web:http", 1
	if err := w.pass(); err == nil {
		t.Error("the first pass reports no failure")
	}
	if err := w.pass(); err != nil {
		t.Fatal(err)
	}
	if got := w.rules.frontends(t); len(got) != 1 || got["default/mail:http"] == nil {
		t.Errorf("served: %v", got)
	}
	if len(w.watcher.problems) != 1 || w.watcher.problems[0].Object.Name != "web" {
		t.Errorf("problems: %v", w.watcher.problems)
	}
}
