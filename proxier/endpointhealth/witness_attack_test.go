package endpointhealth

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestServerIsAWitness: one witness is an endpoint of the API server, however many namespaces there are.
func TestServerIsAWitness(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	for i := range 200 {
		name := state.Name{Namespace: fmt.Sprintf("tenant-%d", i), Name: "web"}
		w.Store.SetSlice(&state.Slice{
			Name: name, Service: name, Family: state.IPv4, Weight: 1, Ports: []state.SlicePort{{Protocol: state.TCP, Port: 80}},
			Endpoints: []state.Endpoint{{Addr: numbered(i, 80).Addr(), Ready: true, Node: "other"}},
		}, nil)
	}
	server := at(1)
	w.Store.SetService(&state.Service{Name: kubernetesService()}, nil)
	w.Store.SetSlice(&state.Slice{
		Name: kubernetesService(), Service: kubernetesService(), Family: state.IPv4, Weight: 1,
		Ports:     []state.SlicePort{{Protocol: state.TCP, Port: server.Port()}},
		Endpoints: []state.Endpoint{{Addr: server.Addr(), Ready: true, Node: "control-plane"}},
	}, nil)
	for range 20 {
		if list := w.walker.witnesses(nil, nil); len(list) != maxWitnesses || !slices.Contains(list, server) {
			t.Fatalf("witnesses %v, want %d with %s", list, maxWitnesses, server)
		}
	}
}

// TestManyDoubtedNodes: a tenant names a thousand nodes for endpoints that fail, and has ten thousand more on the last of them. The
// walk for witnesses, which all tenants wait for, takes about as long as with one node.
func TestManyDoubtedNodes(t *testing.T) {
	const many = 1000
	w := newWorld(t, func(*Options) {})
	sl := &state.Slice{Name: web, Service: web, Family: state.IPv4, Weight: 1, Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}}
	var nodes []string
	for i := range many {
		nodes = append(nodes, fmt.Sprintf("a-node-of-the-tenant-%04d", i))
	}
	for i := range 10 * many {
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: numbered(i, 80).Addr(), Ready: true, Node: nodes[many-1]})
	}
	w.Store.SetSlice(sl, nil)
	took := func(failing []string) (least time.Duration) {
		for range 10 {
			began := time.Now()
			if found := w.walker.witnesses(failing, nil); len(found) > 0 {
				t.Fatalf("%v are witnesses, and their nodes are in doubt", found)
			}
			if d := time.Since(began); least == 0 || d < least {
				least = d
			}
		}
		return least
	}
	if one, all := took(nodes[many-1:]), took(nodes); all > 50*one {
		t.Errorf("%s with one node in doubt, %s with %d", one, all, many)
	}
}
