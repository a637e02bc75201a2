package proxier

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// hashed adds a Service that hashes clients to two endpoints: a table of 4,093 slots.
func (w *world) hashed(i int) state.Name {
	svc := service(fmt.Sprint("hash-", i), netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}).String(), 1)
	svc.Balancing.Scheduler = "mh"
	w.store.SetService(svc, nil)
	w.store.SetSlice(slice(svc.Name.Name, fmt.Sprintf("10.3.%d.1", i), fmt.Sprintf("10.3.%d.2", i)), nil)
	return svc.Name
}

func (w *world) plain() (n int) {
	for _, p := range w.watcher.problems {
		if strings.Contains(p.Reason, "slots for weights or hashing have no room (--max-namespace-elements)") {
			n++
		}
	}
	return n
}

// TestHashTablesCount: the slots of hash tables count for the namespace. A Service without room is served at random, and
// gets its table when there is room.
func TestHashTablesCount(t *testing.T) {
	w := newWorldWith(func(o *Options) { o.Settings.Budgets.NamespaceElements = 20_000 })
	w.store.MarkSynced()
	var names []state.Name
	for i := range 7 {
		names = append(names, w.hashed(i))
	}
	w.mustApply(t)
	if n := w.plain(); n != 3 {
		t.Errorf("%d Services have no hash table, want 3 of 7", n)
	}
	w.store.DeleteService(names[0])
	w.mustApply(t)
	if n := w.plain(); n != 2 {
		t.Errorf("%d Services have no hash table, want 2 of 6", n)
	}
}

// TestWeightsCount: the slots for weights count for the Service and its passes. A port without room for them is served
// without weights, by all its endpoints.
func TestWeightsCount(t *testing.T) {
	w := newWorldWith(func(o *Options) { o.Settings.Budgets.ServiceElements = 100 })
	w.store.MarkSynced()
	heavy := slice("web", "10.3.0.1", "10.3.0.2")
	heavy.Weight = 60_000
	light := slice("web", "10.3.0.3")
	light.Name.Name, light.Weight = "web-2", 29_989
	w.store.SetService(service("web", "10.96.0.1", 1), nil)
	w.store.SetSlice(heavy, nil)
	w.store.SetSlice(light, nil)
	w.mustApply(t)
	if len(w.watcher.problems) != 1 || !strings.Contains(w.watcher.problems[0].Reason, "slots for weights or hashing have no room (--max-service-elements)") {
		t.Errorf("problems %v", w.watcher.problems)
	}
	if got := w.rules.endpoints(t, "default/web:http"); len(got) != 3 {
		t.Errorf("endpoints %v, want three", got)
	}
}
