package proxier

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestTenantLeavesTurnsForFirstLooks: a tenant has more endpoints than can be looked at in an hour. Those of another
// namespace are looked at all the same, and all are looked at in the end.
func TestTenantLeavesTurnsForFirstLooks(t *testing.T) {
	l, now := newFirstLooks(), time.Now()
	var many []netip.AddrPort
	for i := range 10_000 {
		many = append(many, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80))
	}
	l.set(state.Name{Namespace: "tenant", Name: "a"}, many)
	l.set(state.Name{Namespace: "shop", Name: "web"}, []netip.AddrPort{deadEndpoint})
	if list := l.due(now); !slices.Contains(list, deadEndpoint) || len(list) != looksAtOnce {
		t.Errorf("the first looks are at %v, want one at %s", list, deadEndpoint)
	}
	looked := looksAtOnce
	for list := l.due(now); len(list) > 0; list = l.due(now) {
		looked += len(list)
	}
	if looked != len(many)+1 {
		t.Errorf("%d endpoints are looked at, want %d", looked, len(many)+1)
	}
	for range 10 { // endpoints come and go
		l.set(state.Name{Namespace: "tenant", Name: "a"}, nil)
		l.set(state.Name{Namespace: "tenant", Name: "a"}, many)
	}
	if n := l.queue.Len() + len(l.later); n > 2*len(l.known)+1000 {
		t.Errorf("%d endpoints wait, and there are %d", n, len(l.known))
	}
}
