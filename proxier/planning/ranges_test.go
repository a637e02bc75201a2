package planning

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// rangesAt is the room that Services have when the oldest get theirs first: at most node altogether, and at most namespace in each
// namespace.
func rangesAt(node, namespace int, list []asker) map[state.Name]int {
	list, given, used := slices.Clone(list), map[state.Name]int{}, map[string]int{}
	slices.SortFunc(list, func(a, b asker) int {
		return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.name.Namespace, b.name.Namespace), strings.Compare(a.name.Name, b.name.Name))
	})
	for _, a := range list {
		if n := min(a.n, node, namespace-used[a.name.Namespace]); n > 0 {
			given[a.name] = n
			node, used[a.name.Namespace] = node-n, used[a.name.Namespace]+n
		}
	}
	return given
}

// TestRangesAreShared compares who has room with a plain model, while Services come, change and go at random. Who has less is
// named, and so is who has more.
func TestRangesAreShared(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	r, asking, has := newRanges(10, 4), map[state.Name]asker{}, map[state.Name]int{}
	for round := range 5000 {
		a := asker{state.Name{Namespace: string(rune('a' + rng.IntN(5))), Name: string(rune('a' + rng.IntN(5)))}, rng.Int64N(6), max(0, rng.IntN(7)-2)}
		less, more := r.ask(a)
		if asking[a.name] = a; a.n == 0 {
			delete(asking, a.name)
		}
		want := rangesAt(10, 4, slices.Collect(func(yield func(asker) bool) {
			for _, a := range asking {
				if !yield(a) {
					return
				}
			}
		}))
		for namespace := 'a'; namespace < 'f'; namespace++ {
			for service := 'a'; service < 'f'; service++ {
				n := state.Name{Namespace: string(namespace), Name: string(service)}
				if got := r.limit(n); got.N != want[n] || got.N < asking[n].n && got.Flag == "" {
					t.Fatalf("round %d: %s has room for %+v, want %d of %d", round, n, got, want[n], asking[n].n)
				}
				if n != a.name && (slices.Contains(less, n) != (want[n] < has[n]) || slices.Contains(more, n) != (want[n] > has[n])) {
					t.Fatalf("round %d: %s had %d and has %d; less: %v, more: %v", round, n, has[n], want[n], less, more)
				}
			}
		}
		has = want
	}
}

// TestRangesOfMany: what a change costs does not depend on how many Services wait for room, in the namespace or in others.
func TestRangesOfMany(t *testing.T) {
	allocations := func(services, namespaces int) float64 {
		r := newRanges(32, 12)
		for i := range services {
			r.ask(asker{state.Name{Namespace: fmt.Sprint(i % namespaces), Name: fmt.Sprint(i)}, int64(i), 5})
		}
		oldest, n := state.Name{Namespace: "0", Name: "0"}, 0
		return testing.AllocsPerRun(20, func() {
			n++
			r.ask(asker{oldest, 0, 1 + n%5})
		})
	}
	for _, namespaces := range []int{1, 100} {
		if few, many := allocations(1000, namespaces), allocations(10_000, namespaces); many > few {
			t.Errorf("%d namespaces: a change takes %v allocations among 1,000 Services, and %v among 10,000", namespaces, few, many)
		}
	}
}

// TestOldRangesComeFirst: a Service that comes late and is older takes the room of a younger one, in the same draft, so the
// kernel never has more than there is room for. The younger one gets it back when the older one goes, in a turn of its own. The
// order in which Services are planned, which a restart changes, makes no difference.
func TestOldRangesComeFirst(t *testing.T) {
	s := config.Default()
	s.Budgets.RangeFrontends, s.Budgets.NamespaceRangeFrontends = 5, 3
	world := func() (*state.Store, *Planning, func(namespace, name string, created int64, external int) state.Name) {
		store := state.NewStore()
		p := New(store, &s, nil, func(*plan.Port) (int, map[string]int) { return 0, nil })
		p.Env = plan.Environment{IPv4: true, ExternalIPs: config.Prefixes(s.ExternalIPs)}
		return store, &p, func(namespace, name string, created int64, external int) state.Name {
			svc := &state.Service{
				Name: state.Name{Namespace: namespace, Name: name}, Created: time.Unix(created, 0), ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, namespace[0], name[0]})},
				Ports: []state.ServicePort{{Name: "rtp", Protocol: state.UDP, Port: 10000, EndPort: 19999}, {Name: "sip", Protocol: state.UDP, Port: 5060}},
			}
			for i := range external {
				svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{198, namespace[0], name[0], byte(i)}))
			}
			store.SetService(svc, nil)
			return svc.Name
		}
	}
	ranges := func(d Draft, n state.Name) (of int, problem string) {
		p := d.Plans[n]
		for _, port := range p.Plan.Ports {
			if len(port.Frontends) > 0 && port.Frontends[0].EndPort == 0 {
				if want := len(p.Service.ExternalIPs) + 1; len(port.Frontends) != want {
					t.Errorf("%s: port %s has %d frontends, want %d", n, port.Name, len(port.Frontends), want)
				}
				continue
			}
			of += len(port.Frontends)
		}
		if len(p.Problems) > 0 {
			problem = p.Problems[0].Reason
		}
		return of, problem
	}
	expect := func(d Draft, n state.Name, want int, reason string) {
		t.Helper()
		if got, problem := ranges(d, n); got != want || !strings.Contains(problem, reason) || (reason == "") != (problem == "") {
			t.Errorf("%s has %d frontends with ranges, want %d; the problem is %q, want %q", n, got, want, problem, reason)
		}
	}

	store, p, write := world()
	wide, young := write("a", "x", 3, 9), write("b", "x", 4, 1)
	store.MarkSynced()
	store.Take(2)
	d := p.Draft([]state.Name{young, wide})
	expect(d, wide, 3, "7 frontends with port ranges have no room (--max-namespace-range-frontends, ")
	expect(d, young, 2, "")

	old := write("c", "x", 1, 1)
	store.Take(1)
	d = p.Draft([]state.Name{old})
	expect(d, old, 2, "")
	expect(d, young, 0, "2 frontends with port ranges have no room (--max-range-frontends, ")

	_, again, rewrite := world()
	d = again.Draft([]state.Name{rewrite("c", "x", 1, 1), rewrite("b", "x", 4, 1), rewrite("a", "x", 3, 9)})
	expect(d, old, 2, "")
	expect(d, wide, 3, "7 frontends")
	expect(d, young, 0, "2 frontends")

	store.DeleteService(old)
	store.Take(1)
	if d = p.Draft([]state.Name{old}); len(d.Order) != 1 {
		t.Errorf("%v are planned at once", d.Order)
	}
	changes, _ := store.Take(10)
	if !slices.Equal(changes.Services, []state.Name{young}) {
		t.Fatalf("%v are planned when their turns come, want %s", changes.Services, young)
	}
	expect(p.Draft(changes.Services), young, 2, "")
}
