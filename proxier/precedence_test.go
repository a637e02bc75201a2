package proxier

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestExternalIPTakesNoNodePort: a tenant writes an address of this node, of another node that nobody here knows, and the
// port of another tenant's node port. It gets neither, whichever comes first, and keeps its other port.
func TestExternalIPTakesNoNodePort(t *testing.T) {
	w := newWorld(t)
	thief, victim := service("thief", "10.96.0.1", 1, "192.168.7.1", "192.168.7.9"), service("victim", "10.96.0.2", 2)
	other := thief.Ports[0]
	other.Name, other.Port = "other", 81
	thief.Ports[0].Port, victim.Ports[0].NodePort = 30080, 30080
	thief.Ports = append(thief.Ports, other)
	w.store.SetHostAddresses([]netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("192.168.7.2")})
	w.store.MarkSynced()
	served := func(port string) (list []string) {
		for _, at := range []string{"192.168.7.1", "192.168.7.9"} {
			if slices.Contains(w.rules.frontends(t)["default/thief:"+port], at) {
				list = append(list, at)
			}
		}
		return list
	}
	expect := func(what string, want, problems int) {
		t.Helper()
		if err := w.Once(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := served("http"); len(got) != want || len(served("other")) != 2 {
			t.Errorf("%s: the thief has %v at the number of the node port, want %d, and %v at the other", what, got, want, served("other"))
		}
		if len(w.watcher.problems) != problems {
			t.Errorf("%s: problems %v, want %d", what, w.watcher.problems, problems)
		}
	}
	w.store.SetService(thief, nil)
	expect("before the node port", 2, 0)
	w.store.SetService(victim, nil)
	expect("with the node port", 0, 2)
	w.store.SetNode(&state.Node{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.168.7.2")}}, nil)
	expect("when node ports answer at another address", 0, 2)
	w.store.DeleteService(victim.Name)
	expect("when the node port is gone", 2, 0)
}

// TestExternalIPTakesNoServer: a tenant had an address before Verdict connects to the API server there. It loses that port,
// also when the connection has ended.
func TestExternalIPTakesNoServer(t *testing.T) {
	w := newWorld(t)
	thief := service("thief", "10.96.0.1", 1, "192.0.2.9", "192.0.2.10")
	thief.Ports[0].Port = 6443
	w.store.SetService(thief, nil)
	w.store.MarkSynced()
	expect := func(what string, want bool) {
		t.Helper()
		if err := w.Once(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		served := w.rules.frontends(t)["default/thief:http"]
		if slices.Contains(served, "192.0.2.9") != want || !slices.Contains(served, "192.0.2.10") {
			t.Errorf("%s: the thief is served at %v", what, served)
		}
	}
	expect("before", true)
	w.store.AddServer(netip.MustParseAddrPort("192.0.2.9:6443"))
	expect("Verdict connects there", false)
	for i := range 63 {
		w.store.AddServer(netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), uint16(i+1)))
	}
	expect("and to 63 others", false)
	w.store.AddServer(netip.MustParseAddrPort("198.51.100.2:6443"))
	expect("and to one more: the oldest is forgotten", true)
}

// TestLostFrontendNeedsNoEndpoints: the endpoints of a Service that lost its only frontend are not in the kernel. A pool
// that no frontend uses any more goes, too.
func TestLostFrontendNeedsNoEndpoints(t *testing.T) {
	w := newWorld(t)
	first, second := service("first", "10.96.0.1", 1), service("second", "10.96.0.1", 2, "203.0.113.1")
	w.store.SetService(second, nil)
	w.store.SetSlice(slice("first", "10.244.0.1"), nil)
	w.store.SetSlice(slice("second", "10.244.0.2", "10.244.0.3"), nil)
	w.store.MarkSynced()
	expect := func(what string, want int) {
		t.Helper()
		for more := true; more; { // a pass on a busy machine may leave changes to the next one
			w.mustApply(t)
			c, _ := w.store.Pending()
			more = len(c.Services) > 0
		}
		n := 0
		for _, l := range w.rules.kernel.Lines() {
			if l.Set == "endpoints" && !strings.Contains(l.Text, ": 10.244.0.1 .") { // which the first Service has
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d endpoints of the second Service are in the kernel, want %d", what, n, want)
		}
	}
	expect("with both frontends", 2)
	w.store.SetService(first, nil)
	expect("with its external IP", 2)
	second = service("second", "10.96.0.1", 2)
	w.store.SetService(second, nil)
	expect("without a frontend", 0)
	second = service("second", "10.96.0.1", 2, "203.0.113.1")
	second.ExternalLocal = true
	w.store.SetService(second, nil)
	expect("with an external IP and local traffic", 2)
	w.store.SetService(service("second", "10.96.0.1", 2), nil)
	w.store.DeleteService(first.Name)
	expect("when the other Service is gone", 2)
}
