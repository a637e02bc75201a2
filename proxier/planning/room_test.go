package planning

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

// TestRoomComesBack: a Service gives room back that many others of its namespace wait for. They are planned when their turns
// come, and not all in the pass of the first one, for which the changes of others would wait.
func TestRoomComesBack(t *testing.T) {
	s := config.Default()
	s.Budgets.NamespaceElements = 150
	store := state.NewStore()
	p := New(store, &s, nil, func(*plan.Port) (int, map[string]int) { return 0, nil })
	p.Env = plan.Environment{IPv4: true}
	write := func(i byte, endpoints int) state.Name {
		name := state.Name{Namespace: "tenant", Name: string('a' + rune(i))}
		store.SetService(&state.Service{
			Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, i + 1})}, Ports: []state.ServicePort{{Protocol: state.TCP, Port: 80}},
		}, nil)
		sl := &state.Slice{Name: name, Service: name, Family: state.IPv4, Weight: 1, Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}}
		for j := range endpoints {
			sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, i, byte(j)}), Ready: true})
		}
		store.SetSlice(sl, nil)
		return name
	}
	var names []state.Name
	for i := range 4 {
		names = append(names, write(byte(i), 100))
	}
	store.MarkSynced()
	store.Take(len(names))
	p.Draft(names)
	write(0, 1)
	if changes, _ := store.Take(len(names)); len(changes.Services) != 1 {
		t.Fatalf("changed: %v", changes.Services)
	}
	if d := p.Draft(names[:1]); len(d.Order) != 1 {
		t.Errorf("%v are planned at once", d.Order)
	}
	if changes, _ := store.Take(len(names)); len(changes.Services) != 3 {
		t.Errorf("%v wait for their turns, want the others", changes.Services)
	}
}

// TestCause: a Service takes an address from another one of another namespace. Both are planned, because of the first one.
func TestCause(t *testing.T) {
	s := config.Default()
	store := state.NewStore()
	p := New(store, &s, nil, func(*plan.Port) (int, map[string]int) { return 0, nil })
	p.Env = plan.Environment{IPv4: true, ExternalIPs: config.Prefixes(s.ExternalIPs)}
	write := func(namespace string, last byte, created int64) state.Name {
		name := state.Name{Namespace: namespace, Name: "web"}
		store.SetService(&state.Service{
			Name: name, Created: time.Unix(created, 0), ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, last})},
			ExternalIPs: []netip.Addr{netip.MustParseAddr("198.51.100.1")}, Ports: []state.ServicePort{{Protocol: state.TCP, Port: 80}},
		}, nil)
		return name
	}
	victim := write("shop", 1, 2)
	if d := p.Draft([]state.Name{victim}); len(d.Costs)+len(d.Cause) != 0 {
		t.Errorf("what nobody changed was planned because of %v, which took %v", d.Cause, d.Costs)
	}
	thief := write("tenant", 2, 1)
	const each = 2 * threadtime.Brief
	p.Since = func(time.Time) time.Duration { return each }
	d := p.Draft(nil)
	p.Extend(&d, thief)
	if len(d.Order) != 2 || len(d.Cause) != 1 || d.Cause[victim] != thief {
		t.Errorf("%v are planned, because of %v", d.Order, d.Cause)
	}
	for _, name := range d.Order {
		p.Charge(&d, name, func() {})
	}
	if len(d.Costs) != 1 || d.Costs[thief].Planning != 3*each {
		t.Errorf("they took %v", d.Costs)
	}
}
