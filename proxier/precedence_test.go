package proxier

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestExternalIPTakesNoNodePort: a tenant writes a node's address and the port of another tenant's node port. It gets
// that frontend only where node ports do not answer.
func TestExternalIPTakesNoNodePort(t *testing.T) {
	w := newWorld(t)
	thief, victim := service("thief", "10.96.0.1", 1, "192.168.7.1"), service("victim", "10.96.0.2", 2)
	thief.Ports[0].Port, victim.Ports[0].NodePort = 30080, 30080
	w.store.SetService(thief, nil)
	w.store.SetService(victim, nil)
	w.store.SetHostAddresses([]netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("192.168.7.2")})
	w.store.MarkSynced()
	at := func() bool { return slices.Contains(w.rules.frontends(t)["default/thief:http"], "192.168.7.1") }
	if err := w.Once(); err != nil || at() {
		t.Fatalf("the external IP takes the node port: %v (error %v)", at(), err)
	}
	if len(w.watcher.problems) != 1 || w.watcher.problems[0].Object != thief.Name {
		t.Errorf("problems %v, want one of the thief", w.watcher.problems)
	}
	w.store.SetNode(&state.Node{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.2")}, Eligible: true}, nil)
	if err := w.Once(); err != nil || !at() {
		t.Fatalf("node ports answer at another address, and the external IP is served: %v (error %v)", at(), err)
	}
	w.store.SetNode(nil, nil)
	if err := w.Once(); err != nil || at() {
		t.Fatalf("node ports answer there again, and the external IP takes one: %v (error %v)", at(), err)
	}
}
