package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// largeChanges are enough elements for a change to count.
const largeChanges = 1000

// large returns a Service whose every external IP depends on the round.
func large(round int) *state.Service {
	svc := service("large", "10.96.9.9", 1)
	svc.Namespace = "tenant"
	for i := range largeChanges {
		svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{203, byte(round), byte(i >> 8), byte(i)}))
	}
	return svc
}

// TestPauses: a namespace that changes too much has to wait. The changes of others go on meanwhile, and in the end the
// kernel has its latest state.
func TestPauses(t *testing.T) { synctest.Test(t, testPauses) } // a pass takes no time, so that no credit comes back meanwhile

func testPauses(t *testing.T) {
	w := newWorldWith(func(o *Options) {
		o.Settings.Budgets.NamespaceElements, o.Settings.Budgets.NamespaceChanges = 4*largeChanges, 10*largeChanges
	})
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

func (w *world) mustApply(t *testing.T) {
	t.Helper()
	if err := w.pass(); err != nil {
		t.Fatal(err)
	}
}
