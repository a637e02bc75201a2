package state_test

import (
	"fmt"
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// A source writes into the store. The loop reads what is pending and confirms it once the kernel has it.
func ExampleStore() {
	store := state.NewStore()
	web := state.Name{Namespace: "shop", Name: "web"}
	store.SetService(&state.Service{
		Name:       web,
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Ports:      []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80}},
	}, nil)
	_, synced := store.Pending()
	fmt.Println("before the first complete list:", synced)

	store.MarkSynced()
	changes, _ := store.Pending()
	fmt.Println("pending:", changes.Services)

	// Another change arrives while the pass runs. It stays pending.
	store.SetSlice(&state.Slice{
		Name:      state.Name{Namespace: "shop", Name: "web-x7k2p"},
		Service:   web,
		Family:    state.IPv4,
		Ports:     []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}},
		Endpoints: []state.Endpoint{{Addr: netip.MustParseAddr("10.0.1.1"), Ready: true, Serving: true}},
		Weight:    state.DefaultWeight,
	}, nil)
	store.Applied(changes)
	changes, _ = store.Pending()
	fmt.Println("after the pass:", changes.Services)

	store.Applied(changes)
	changes, _ = store.Pending()
	fmt.Println("after the next pass:", changes.Services)

	svc, slices := store.Service(web)
	fmt.Println(svc.Name, "has", len(slices), "slice")
	// Output:
	// before the first complete list: false
	// pending: [shop/web]
	// after the pass: [shop/web]
	// after the next pass: []
	// shop/web has 1 slice
}
