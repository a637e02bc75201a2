//go:build !nokernel

package proxier

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// rangeRuleset looks at what the kernel has after each transaction.
type rangeRuleset struct {
	*nft.Engine
	t       *testing.T
	options kernel.Options
	most    int
	served  map[string]bool // the frontends with ranges
}

func (r *rangeRuleset) Apply() (nft.Result, error) {
	result, err := r.Engine.Apply()
	for _, set := range r.Elements() {
		if set.Set.HasPorts() && set.Elements > r.most {
			r.t.Errorf("%s %s has %d elements, want at most %d", set.Family, set.Set, set.Elements, r.most)
		}
	}
	listing, listErr := inspect.List(r.options, nil)
	if err != nil || listErr != nil {
		r.t.Fatal(err, listErr)
	}
	r.served = map[string]bool{}
	room := map[string]int{}
	for _, fe := range listing.Frontends {
		if fe.LastPort == 0 {
			continue
		}
		r.served[fmt.Sprint(fe.Name, " ", fe.Addr)] = true
		for _, of := range []string{"the node", serviceOf(fe.Name).Namespace} {
			if room[of]++; fe.Family == program.IPv6 {
				room[of]++
			}
		}
	}
	if room["the node"] > r.most || max(room["a"], room["b"], room["c"]) > r.most-2 {
		r.t.Errorf("the ranges in the kernel count %v, want at most %d on the node and %d in a namespace", room, r.most, r.most-2)
	}
	return result, err
}

func newRangeWorld(t *testing.T) (*world, *rangeRuleset) {
	ns := netns.New(t)
	engine, err := nft.Open(nft.Options{NetNS: ns.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	rules := &rangeRuleset{Engine: engine, t: t, options: kernel.Options{NetNS: ns.Fd()}, most: 7}
	return newWorldWith(func(o *Options) {
		o.Settings.Budgets.RangeFrontends, o.Settings.Budgets.NamespaceRangeFrontends = rules.most, rules.most-2
		o.Dataplane = dataplane.New(dataplane.Options{Ruleset: rules})
		o.Primary = func() ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("fd07::1")}, nil
		}
	}), rules
}

// settle makes passes until none is left to make.
func (w *world) settle(t *testing.T) {
	t.Helper()
	for w.mustApply(t); w.pendingServices() > 0; {
		w.mustApply(t)
	}
}

// TestRoomForRanges: Services with ranges come and go, and older ones come late. After each transaction, the kernel has no more
// ranges than there is room for. A restart serves the same ones.
func TestRoomForRanges(t *testing.T) {
	w, rules := newRangeWorld(t)
	w.store.MarkSynced()
	rng := rand.New(rand.NewPCG(3, 0))
	for round := range 80 {
		i, j := byte(rng.IntN(3)), byte(rng.IntN(3))
		name := state.Name{Namespace: string('a' + rune(i)), Name: string('x' + rune(j))}
		svc := service("", fmt.Sprintf("10.96.%d.%d", i, j), rng.Int64N(50))
		svc.Name, svc.Ports[0].EndPort = name, 90
		svc.ClusterIPs = append(svc.ClusterIPs, netip.AddrFrom16([16]byte{0: 0xfd, 14: i, 15: j}))
		for k := range byte(rng.IntN(6)) {
			svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{198, i, j, k}), netip.AddrFrom16([16]byte{0x20, 1, 13: i, 14: j, 15: k}))
		}
		sl := slice("", "10.3.0.1")
		sl.Name, sl.Service, sl.Ports[0].Port = name, name, 80
		switch rng.IntN(6) {
		case 0:
			w.store.DeleteService(name)
		case 1:
			w.store.DeleteSlice(name)
		case 2:
			w.store.SetSlice(sl, nil)
		default:
			w.store.SetService(svc, nil)
		}
		if w.settle(t); t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	again, restarted := newRangeWorld(t)
	for _, name := range w.store.ServiceNames() {
		svc, slices := w.store.Service(name)
		again.store.SetService(svc, nil)
		for _, sl := range slices {
			again.store.SetSlice(sl, nil)
		}
	}
	again.store.MarkSynced()
	if again.settle(t); !maps.Equal(rules.served, restarted.served) || len(rules.served) == 0 {
		t.Errorf("before the restart, the kernel has %v, and then %v", rules.served, restarted.served)
	}
}
