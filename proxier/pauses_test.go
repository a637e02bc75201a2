package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// large returns a Service whose every external IP depends on the round.
func large(round int) *state.Service {
	svc := service("large", "10.96.9.9", 1)
	svc.Namespace = "tenant"
	for i := range largeChange {
		svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{203, byte(round), byte(i >> 8), byte(i)}))
	}
	return svc
}

// TestPauses: a namespace that changes too much has to wait. The changes of others go on meanwhile, and in the end the
// kernel has its latest state.
func TestPauses(t *testing.T) { synctest.Test(t, testPauses) } // a pass takes no time, so that no credit comes back meanwhile

func testPauses(t *testing.T) {
	w := newWorld(t)
	w.settings.Budgets.NamespaceElements, w.settings.Budgets.NamespaceChanges = 4*largeChange, 10*largeChange
	w.pauses = newPauses(w.Proxier.log, &w.settings.Budgets)
	w.store.MarkSynced()
	w.mustApply(t)
	round := 0
	for paused := 0; paused == 0; paused = w.watcher.passes[len(w.watcher.passes)-1].Pauses {
		if round++; round > 9 {
			t.Fatal("no pause")
		}
		w.store.SetService(large(round), nil)
		w.mustApply(t)
	}
	w.store.SetService(large(round+1), nil)
	w.store.SetService(large(round+2), nil)
	w.store.SetService(service("web", "10.96.0.7", 1), nil)
	w.mustApply(t)
	has := w.rules.frontends(t)
	if !slices.Contains(has["default/web:http"], "10.96.0.7") {
		t.Error("a Service of another namespace waits, too")
	}
	newest := fmt.Sprintf("203.%d.0.1", round+2)
	if slices.Contains(has["tenant/large:http"], newest) {
		t.Error("the namespace does not wait")
	}
	for end := time.Now().Add(30 * time.Second); !slices.Contains(w.rules.frontends(t)["tenant/large:http"], newest); {
		select {
		case <-w.store.Wake():
			w.mustApply(t)
		case <-time.After(time.Until(end)):
			t.Fatal("the kernel never gets the latest state of the namespace")
		}
	}
	if log := w.log.String(); strings.Count(log, "changes too much") != 1 || !strings.Contains(log, "namespace=tenant service=large") {
		t.Errorf("want one line about it:\n%s", log)
	}
}

// TestCredit: large changes take from the credit of their namespace, and time gives it back.
func TestCredit(t *testing.T) {
	w := newWorld(t)
	w.settings.Budgets.NamespaceElements, w.settings.Budgets.NamespaceChanges = 5000, 1000
	p := newPauses(w.Proxier.log, &w.settings.Budgets)
	begin := time.Now()
	for _, step := range []struct {
		after, n int // seconds since the begin; changes
		want     time.Duration
	}{
		{0, 4000, 0},
		{1, 2000, 0},               // 0 left
		{2, 3000, 2 * time.Second}, // 1,000 came back
		{3, 1000, 0},               // it waits already
		{5, 1000, time.Second},     // 2,000 came back, which were missing
		{3600, 6000, time.Second},  // no more than 5,000 came back
		{7200, 5000, 0},            // 5,000 again
		{7200, 1500, 1500 * time.Millisecond},
	} {
		wait := p.charge(map[state.Name]int{{Namespace: "tenant", Name: "large"}: step.n}, begin.Add(time.Duration(step.after)*time.Second))
		if got := wait["tenant"]; got.Round(time.Millisecond) != step.want {
			t.Errorf("%d changes after %d s: wait %s, want %s", step.n, step.after, got, step.want)
		}
	}
	p.charge(map[state.Name]int{{Namespace: "other", Name: "large"}: 1000}, begin.Add(20_000*time.Second))
	if len(p.credits) != 1 {
		t.Errorf("the credits of %d namespaces are kept, want 1", len(p.credits))
	}
}

func (w *world) mustApply(t *testing.T) {
	t.Helper()
	if err := w.pass(); err != nil {
		t.Fatal(err)
	}
}

// TestPausesOfPlanning: what a pass plans beyond the largest Service counts, too.
func TestPausesOfPlanning(t *testing.T) {
	w := newWorld(t)
	w.settings.Budgets.ServiceFrontends, w.settings.Budgets.ServiceElements = 10, 90
	p := newPauses(w.Proxier.log, &w.settings.Budgets)
	d := draft{plans: map[state.Name]*plan.Service{}}
	for i := range 5 {
		name := state.Name{Namespace: []string{"tenant", "shop"}[i/4], Name: fmt.Sprint(i)}
		d.order = append(d.order, name)
		d.plans[name] = &plan.Service{Name: name, Used: plan.Usage{Frontends: 5, Elements: 45}}
		d.size += 50
	}
	total := 0
	for name, n := range p.planned(&d) {
		if total += n; name.Namespace != "tenant" {
			t.Errorf("%s has to pay", name)
		}
	}
	if total != 100 {
		t.Errorf("%d, want what four plans of 50 are above 100", total)
	}
}
