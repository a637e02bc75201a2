package dataplane

import (
	"fmt"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestChanged: an apply tells what single Services needed, in nft and in IPVS, also for those that end.
func TestChanged(t *testing.T) {
	const endpoints = 150
	name := state.Name{Namespace: "default", Name: "large"}
	for _, scheduler := range []string{"", "lc"} {
		w := newWorld(t, false)
		w.apply()
		w.serve("large", "10.96.0.9", scheduler)
		port := &w.services[name].Ports[0]
		port.Cluster = nil
		for i := range endpoints {
			port.Cluster = append(port.Cluster, reals(fmt.Sprintf("10.0.9.%d:8080", 1+i))...)
		}
		w.set(name)
		w.apply()
		if n := w.last.Changed[name].Sum(); n < endpoints || n > 2*endpoints {
			t.Errorf("scheduler %q: %d changes, want about %d", scheduler, n, endpoints)
		}
		if len(w.last.Changed) != 1 {
			t.Errorf("scheduler %q: %v, want one Service", scheduler, w.last.Changed)
		}
		w.Delete(name)
		w.apply()
		if n := w.last.Changed[name].Sum(); n < 1 {
			t.Errorf("scheduler %q: %d changes at the end", scheduler, n)
		}
	}
}
