package proxier

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestSiblings: the kernel notices one endpoint of a dead node. The others of that node are asked, and found dead as well.
func TestSiblings(t *testing.T) {
	r := newOutlierRig(t, func(*config.Settings) {})
	web := outlierServices[0].name
	pool := []netip.AddrPort{
		netip.MustParseAddrPort("10.0.1.1:8080"), netip.MustParseAddrPort("10.0.1.2:8080"), netip.MustParseAddrPort("10.0.1.3:8080"),
		deadEndpoint, netip.MustParseAddrPort("10.0.2.2:8080"),
	}
	sl := &state.Slice{
		Name: state.Name{Namespace: web.Namespace, Name: web.Name + "-x"}, Service: web, Family: state.IPv4,
		Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}, Weight: 1,
	}
	var planned []plan.Endpoint
	for i, at := range pool {
		node := "other"
		if i < 3 {
			node = "this"
		}
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: at.Addr(), Ready: true, Node: node})
		planned = append(planned, plan.Endpoint{Addr: at})
	}
	r.store.SetSlice(sl, nil)
	looked := map[netip.AddrPort]bool{}
	r.Ask = func(_ context.Context, at netip.AddrPort) outlier.Answer {
		r.mu.Lock()
		defer r.mu.Unlock()
		if looked[at] && slices.Contains(pool[3:], at) {
			return outlier.Silent
		}
		looked[at] = true
		return outlier.Good
	}
	choose := func() (left []netip.AddrPort) {
		svc, list := r.store.Service(web)
		r.begin(svc, list)
		for _, e := range r.Choose(svc, state.TCP, planned) {
			left = append(left, e.Addr)
		}
		r.set(web, &plan.Service{Name: web, Outliers: svc.Outliers})
		return left
	}
	choose()
	r.lookFirst(t.Context())
	for range pool {
		r.take(<-r.answers)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = r.Run(ctx) }() // returns nil
	for end := time.Now().Add(30 * time.Second); !slices.Equal(choose(), pool[:3]); {
		select {
		case <-r.wake():
		case <-time.After(time.Until(end)):
			t.Fatalf("left are %v, want %v", choose(), pool[:3])
		}
	}
}

// TestTenantLeavesRoomForSiblings: a tenant writes the name of a dead node into thousands of endpoints, and the endpoint of
// another namespace on this node is asked all the same.
func TestTenantLeavesRoomForSiblings(t *testing.T) {
	r := newOutlierRig(t, func(*config.Settings) {})
	sl := &state.Slice{
		Name: state.Name{Namespace: "tenant", Name: "a"}, Service: state.Name{Namespace: "tenant", Name: "a"}, Family: state.IPv4,
		Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}, Weight: 1,
	}
	for i := range 5000 {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: addr, Ready: true, Node: "other"})
	}
	r.store.SetService(&state.Service{Name: sl.Service}, nil)
	r.store.SetSlice(sl, nil)
	for range 20 { // slices have no order
		found := r.findSiblings(map[string]bool{"other": true})
		if _, ok := found[deadEndpoint]; !ok || len(found) != maxSiblings {
			t.Fatalf("%d endpoints are asked, want %d; that of another namespace: %t", len(found), maxSiblings, ok)
		}
	}
}
