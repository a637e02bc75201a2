package endpointhealth

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// forbidden is an address that this node must not ask.
var forbidden = netip.MustParseAddrPort("168.63.129.16:8080")

// TestForgedNodeName: a tenant names the dead node of another endpoint, or any node that works, in the slice of an address that
// this node must not ask. It is asked neither as a sibling of the dead endpoint, nor as a witness, nor after a restart.
func TestForgedNodeName(t *testing.T) {
	var asked []netip.AddrPort
	w := newWorld(t, func(o *Options) {
		o.Ask = func(_ context.Context, q *Question) Answer { asked = append(asked, q.At); return Answer{} }
	})
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), forbidden}, nil)
	_, list := w.Store.Service(web)
	list[0].Endpoints[1].Node = list[0].Endpoints[0].Node
	if found := w.findSiblings(map[string]bool{list[0].Endpoints[0].Node: true}); len(found) != 1 {
		t.Errorf("%v are asked with the dead endpoint, want only that one", found)
	}
	list[0].Endpoints = list[0].Endpoints[1:]
	if found := w.witnesses(nil); len(found) > 0 {
		t.Errorf("%v are witnesses", found)
	}
	go w.inquire(t.Context(), answered{inquiry: inquiry{At: forbidden}})
	select {
	case a := <-w.Monitor.answers:
		if len(asked) > 0 || !a.answer.Good() {
			t.Errorf("asked %v: %+v; who must not be asked counts as good", asked, a.answer)
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer")
	}
}

// TestTranslated: the node does not ask where a Service is served, from before the kernel has it until after it has lost it.
// Other ports of the address may be asked, so nobody ends the checks of another tenant by an external IP.
func TestTranslated(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	to := netip.MustParseAddrPort("198.51.100.7:80")
	p := &plan.Service{Name: web, Ports: []plan.Port{{Frontends: []plan.Frontend{{Kind: plan.ExternalIP, Addr: to.Addr(), Port: to.Port()}}}}}
	refused := func(at netip.AddrPort) bool { return w.permit.refuses(at) != "" }
	if refused(to) {
		t.Error("refused before a Service is there")
	}
	w.Serves(p)
	w.Serves(p)
	if !refused(to) || refused(netip.AddrPortFrom(to.Addr(), 81)) {
		t.Errorf("the port of a Service is refused: %t, another one: %t", refused(to), refused(netip.AddrPortFrom(to.Addr(), 81)))
	}
	w.Remove(web)
	if now := time.Now(); !refused(to) || w.permit.translated.has(to, now.Add(lingering)) {
		t.Error("it is not refused for as long as the kernel may have the Service, or for longer")
	}
	w.permit.translated.set(web, nil, time.Now().Add(2*lingering))
	if n := len(w.permit.translated.uses) + len(w.permit.translated.of); n > 0 {
		t.Errorf("%d addresses stay in memory", n)
	}
}
