package endpointhealth

import (
	"context"
	"net/netip"
	"testing"
	"time"

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
