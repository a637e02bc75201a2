package conntrack

import (
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// wide returns a Service of one UDP port with many frontends.
func wide(frontends int, endpoint string) *plan.Service {
	port := plan.Port{Family: state.IPv4, Protocol: state.UDP, Serving: []netip.AddrPort{netip.MustParseAddrPort(endpoint)}}
	for i := range frontends {
		addr := netip.AddrFrom4([4]byte{198, byte(i >> 16), byte(i >> 8), byte(i)})
		port.Frontends = append(port.Frontends, plan.Frontend{Frontend: serviceport.Frontend{Addr: addr, Port: 53}})
	}
	return &plan.Service{Ports: []plan.Port{port}}
}

// flapping returns a Tracker that knows a Service, and a function that changes this Service while nothing is cleaned.
func flapping(frontends int) (*Tracker, func()) {
	tr := NewTracker()
	states := [2]*plan.Service{wide(frontends, "10.0.0.1:53"), wide(frontends, "10.0.0.2:53")}
	change := func() {
		for _, s := range states {
			tr.Set(name("web"), s)
		}
	}
	change()
	tr.all()
	change()
	return tr, change
}

// TestTrackerIsLinear: ten times as many frontends take about ten times as long. A quadratic Tracker takes nearly a hundred
// times as long. On a loaded machine, a linear one may take fourteen times as long, because its memory leaves the caches.
// BenchmarkTracker is more exact.
func TestTrackerIsLinear(t *testing.T) {
	const n, attempts, most = 4000, 3, 40
	runtime.LockOSThread() // its processor time is measured
	defer runtime.UnlockOSThread()
	var growth float64
	for range attempts {
		small, large := fastest(t, n), fastest(t, 10*n)
		growth = float64(large) / float64(small)
		t.Logf("%d frontends take %v, ten times as many take %.1f times as long", n, small, growth)
		if growth < most {
			return
		}
	}
	t.Errorf("ten times as many frontends take %.1f times as long, want less than %d", growth, most)
}

// fastest returns the shortest processor time of some runs, because others use the machine too.
func fastest(t *testing.T, frontends int) time.Duration {
	t.Helper()
	_, change := flapping(frontends)
	best := time.Duration(math.MaxInt64)
	for range 5 {
		start := threadTime(t)
		change()
		best = min(best, threadTime(t)-start)
	}
	return best
}

func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

func BenchmarkTracker(b *testing.B) {
	for _, n := range []int{400, 4000, 40_000} {
		b.Run(fmt.Sprintf("set/frontends=%d", n), func(b *testing.B) {
			_, change := flapping(n)
			b.ReportAllocs()
			for b.Loop() {
				change()
			}
		})
		b.Run(fmt.Sprintf("stale/frontends=%d", n), func(b *testing.B) {
			tr, _ := flapping(n)
			b.ReportAllocs()
			for b.Loop() {
				tr.all()
			}
		})
	}
}

// comeAndGo gives a Service 32,768 frontends with a port number, and takes them away.
func comeAndGo(tr *Tracker, namespace string, port uint16) {
	all, web := wide(1<<15, "10.0.0.1:53"), state.Name{Namespace: namespace, Name: "web"}
	for j := range all.Ports[0].Frontends {
		all.Ports[0].Frontends[j].Port = port
	}
	tr.Set(web, all)
	tr.Set(web, nil)
}

// TestTenantLeavesRoomForRemovedFrontends: a tenant deletes more frontends than can wait. The flows of another Service that
// goes in the same moment are cleaned all the same, and the tenant has its room again afterwards.
func TestTenantLeavesRoomForRemovedFrontends(t *testing.T) {
	tr := NewTracker()
	for range 2 {
		for i := range 5 {
			comeAndGo(tr, "tenant", uint16(1000+i))
		}
		if n := tr.Forgotten(); n != 5<<15-maxRemovedOfTenant {
			t.Errorf("%d frontends of the tenant are forgotten, want all but %d", n, maxRemovedOfTenant)
		}
		tr.Set(name("web"), wide(3, "10.0.0.1:53"))
		tr.Set(name("web"), nil)
		if stale := tr.all(); tr.Forgotten() != 0 || len(stale.targets.made()) != maxRemovedOfTenant+3 {
			t.Errorf("%d frontends are looked at, want those of the other Service, too", len(stale.targets.made()))
		}
		tr.Done()
	}
	if len(tr.removals) != 0 {
		t.Errorf("namespaces are remembered: %v", tr.removals)
	}
}

// TestTrackerIsBoundedWithoutCleaning: Services come, change and go while nothing can be cleaned. What the Tracker
// remembers follows the number of distinct frontends, not the number of changes, up to a limit.
func TestTrackerIsBoundedWithoutCleaning(t *testing.T) {
	tr := NewTracker()
	for i := range 10_000 {
		tr.all()
		tr.Set(name("web"), wide(3, fmt.Sprintf("10.0.0.%d:53", i%200)))
		tr.Set(name("web"), nil)
	}
	if got := len(tr.frontends); got != 3 || len(tr.suspects["shop"]) != 3 || len(tr.services) != 0 {
		t.Errorf("%d frontends are remembered, %d of them suspect, want 3; and %d Services, want none", got, len(tr.suspects["shop"]), len(tr.services))
	}
	for i := range 5 {
		comeAndGo(tr, fmt.Sprint("tenant-", i), uint16(1000+i))
	}
	if got, forgotten := len(tr.frontends), tr.Forgotten(); got != maxRemoved || got+forgotten != 3+5<<15 {
		t.Errorf("%d frontends are remembered, want %d; %d forgotten, want all others", got, maxRemoved, forgotten)
	}
	if again := tr.Forgotten(); again != 0 {
		t.Errorf("the count of forgotten frontends is %d after it was taken, want 0", again)
	}
	tr.all()
	if tr.Done(); len(tr.frontends)+len(tr.suspects)+tr.removed != 0 {
		t.Errorf("after a cleaning %d frontends are remembered, %d suspect, %d removed", len(tr.frontends), len(tr.suspects), tr.removed)
	}
}

// TestDeletedDuringACleaning: a Service that had no change pending is deleted while another one is cleaned. Its flows
// go with the next cleaning.
func TestDeletedDuringACleaning(t *testing.T) {
	tr := NewTracker()
	for i := range 4 {
		tr.Set(name(fmt.Sprint(i)), service(fmt.Sprintf("10.96.0.%d:53>10.0.0.1:53", i)))
	}
	settle(tr)
	tr.Set(name("0"), nil)
	tr.all()
	for i := 1; i < 4; i++ {
		tr.Set(name(fmt.Sprint(i)), nil)
	}
	tr.Done()
	s := tr.all()
	for i := 1; i < 4; i++ {
		if f := flow(fmt.Sprintf("10.96.0.%d:53 10.0.0.1:53", i)); !s.has(f, nil) {
			t.Errorf("%v is not stale although its Service was deleted", f)
		}
	}
}

// TestTwoServicesClaimOneFrontend: one Service keeps a frontend in its plan while another one takes it and gives it
// back. The loop settles such claims before it plans, but the Tracker must not depend on that.
func TestTwoServicesClaimOneFrontend(t *testing.T) {
	tr := NewTracker()
	for _, n := range []string{"a", "b"} {
		tr.Set(name(n), service("10.96.0.10:53>10.0.0.1:53"))
		settle(tr)
	}
	tr.Set(name("b"), nil)
	settle(tr)
	tr.Set(name("a"), service("10.96.0.10:53>10.0.0.2:53"))
	if s := tr.all(); !s.has(flow("10.96.0.10:53 10.0.0.1:53"), nil) || s.has(flow("10.96.0.10:53 10.0.0.2:53"), nil) {
		t.Errorf("the frontend's flows are not judged by the Service that has it: %v", s)
	}
}

// BenchmarkFlowAmongRanges: to find the range of a flow does not depend on how many ranges there are at its address.
func BenchmarkFlowAmongRanges(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			addr, served, changed := netip.MustParseAddr("192.0.2.1"), map[Frontend]target{}, new(atomic.Uint64)
			for i := range uint16(n) {
				served[Frontend{Addr: addr, Port: 2 + 2*i, EndPort: 3 + 2*i}] = target{changed: changed, found: new(int)}
			}
			served[Frontend{Addr: addr, Port: 1, EndPort: 65535}] = target{changed: changed, removed: true, found: new(int)}
			s := Stale{targets: indexOf(served)}
			flow := Flow{Dst: netip.AddrPortFrom(addr, 60_000), Reply: netip.MustParseAddrPort("10.0.0.1:1")}
			for b.Loop() {
				if !s.has(flow, nil) {
					b.Fatal("the flow goes to no range")
				}
			}
		})
	}
}

// TestLoopMakesNoIndex: what a cleaning looks up is made where nobody waits for it. The loop allocates as often for many frontends as
// for few.
func TestLoopMakesNoIndex(t *testing.T) {
	for _, protocol := range []state.Protocol{state.TCP, state.UDP} {
		allocations := func(n int) float64 {
			tr, s := NewTracker(), wide(n, "10.0.0.1:53")
			s.Ports[0].Protocol = protocol
			tr.Set(name("web"), s)
			tr.Look(time.Unix(1, 0))
			if stale := tr.Stale("shop"); len(stale.targets.made())+len(stale.unanswered.made()) != n {
				t.Fatalf("%s: not all of %d frontends are looked at", protocol, n)
			}
			return testing.AllocsPerRun(5, func() { tr.Stale("shop") })
		}
		if few, many := allocations(10), allocations(10_000); many > few {
			t.Errorf("%s: %.0f allocations for 10 frontends, and %.0f for 10,000", protocol, few, many)
		}
	}
}

// TestRemovalBesideOthers: whoever removes a frontend looks through node ports and ranges for what may serve its flows, and not through
// all frontends of others.
func TestRemovalBesideOthers(t *testing.T) {
	tr := NewTracker()
	tr.Set(state.Name{Namespace: "tenant", Name: "wide"}, wide(1000, "10.0.0.1:53"))
	tr.Set(name("web"), service("*4:30053 8.8.8.8:53 8.8.8.8:100-200 > 10.0.0.1:53"))
	if n := len(tr.elsewhere); n != 2 {
		t.Errorf("a removal looks through %d frontends, want 2", n)
	}
	tr.Set(name("web"), nil)
	settle(tr)
	if n := len(tr.elsewhere); n > 0 {
		t.Errorf("%d node ports and ranges stay in memory", n)
	}
}
