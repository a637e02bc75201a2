package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// many puts n Services of a tenant into the store, each with 40 external IPs, and marks it as synced.
func (w *world) many(n int) {
	for i := range n {
		svc := service(fmt.Sprint("wide", i), fmt.Sprintf("10.97.%d.%d", i/250, i%250+1), 1)
		svc.Namespace = "tenant"
		for j := range 40 {
			svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{203, byte(i / 250), byte(i % 250), byte(j + 1)}))
		}
		w.store.SetService(svc, nil)
	}
	w.store.MarkSynced()
}

// TestFirstPassIsComplete: it replaces the rules of an earlier process, so no Service may be missing.
func TestFirstPassIsComplete(t *testing.T) {
	w := newWorld(t)
	w.many(200)
	if err := w.pass(); err != nil || w.pendingServices() != 0 || len(w.rules.frontends(t)) != 200 {
		t.Errorf("error %v, %d Services pending, %d served; want all after one pass", err, w.pendingServices(), len(w.rules.frontends(t)))
	}
}

// TestLaterPassesAreShort: a change of one Service does not wait for all changes of a tenant, and nothing is forgotten
// when a pass fails.
func TestLaterPassesAreShort(t *testing.T) {
	w := newWorld(t)
	w.store.MarkSynced()
	if err := w.pass(); err != nil {
		t.Fatal(err)
	}
	w.many(200)
	other := service("web", "10.96.0.1", 1)
	w.store.SetService(other, nil)
	w.rules.fail = 1
	if err := w.pass(); err == nil || w.pendingServices() != 201 {
		t.Fatalf("error %v, %d Services pending; want an error, and all of them", err, w.pendingServices())
	}
	if err := w.pass(); err != nil {
		t.Fatal(err)
	}
	served := w.rules.frontends(t)
	if len(served["default/web:http"]) != 1 || len(served) > 100 || w.pendingServices() != 201-len(served) {
		t.Errorf("%d Services served, %d pending, web at %v", len(served), w.pendingServices(), served["default/web:http"])
	}
	if err := w.Once(); err != nil || w.pendingServices() != 0 || len(w.rules.frontends(t)) != 201 {
		t.Errorf("in the end: error %v, %d Services pending", err, w.pendingServices())
	}
}

// TestHealthHasTurns: the endpoints of all Services of a tenant fail at once. The change of another tenant does not wait for
// that, and a pass takes no more of it than of other changes.
func TestHealthHasTurns(t *testing.T) {
	w := newWorld(t)
	w.many(200)
	w.store.SetService(service("web", "10.96.0.1", 1), nil)
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	bad := state.Health{{Protocol: state.TCP, At: netip.MustParseAddrPort("10.0.0.1:80"), Sure: true}}
	for i := range 200 {
		w.store.SetHealth(state.Name{Namespace: "tenant", Name: fmt.Sprint("wide", i)}, bad)
	}
	w.store.SetService(service("web", "10.96.0.1", 2), nil)
	// On a machine that stands still, a pass has time for one Service only: that of the tenant, which was first.
	for range 2 {
		if err := w.pass(); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := w.store.Pending()
	if n := len(c.Services); n < 100 || slices.ContainsFunc(c.Services, func(n state.Name) bool { return n.Namespace != "tenant" }) {
		t.Errorf("after two passes, %d of 201 changes wait", n)
	}
	if err := w.Once(); err != nil || w.pendingServices() != 0 {
		t.Errorf("in the end: error %v, %d Services pending", err, w.pendingServices())
	}
}
