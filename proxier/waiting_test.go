package proxier

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// whileOthersWait is a loop in which so many Services of 100 namespaces wait for the next transactions, which are small.
func whileOthersWait(t testing.TB, n int) *world {
	t.Helper()
	w := newWorldInPieces(4, func(*Options) {})
	w.store.MarkSynced()
	w.change(0)
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	for i := range n + n/4 { // some of them come meanwhile
		svc := service(fmt.Sprint("s", i), netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}).String(), 1)
		svc.Namespace = fmt.Sprint("tenant", i%100)
		w.store.SetService(svc, nil)
		sl := slice(svc.Name.Name, "10.0.0.1")
		sl.Namespace, sl.Service, sl.Trigger = svc.Namespace, svc.Name, time.Now().Add(time.Hour)
		w.store.SetSlice(sl, nil)
	}
	for w.store.Rest() {
		if err := w.pass(); err != nil {
			t.Fatal(err)
		}
	}
	if waits := len(memkernel.Waiting(w.rules.Engine)); waits < n {
		t.Fatalf("%d Services wait, want %d", waits, n)
	}
	w.passes.unhurried = false // Services pay
	return w
}

// passesOfOneChange makes passes with one change each.
func (w *world) passesOfOneChange(t testing.TB, n int) {
	for i := range n {
		w.change(1 + i)
		if err := w.pass(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPassLooksAtNoServiceThatWaits: a pass costs the same however many Services wait for later transactions.
func TestPassLooksAtNoServiceThatWaits(t *testing.T) {
	const n, passes = 300, 50
	cost := func(n int) (out spending) {
		w := whileOthersWait(t, n+4*passes)
		w.passesOfOneChange(t, 5) // buffers grow
		out = spending{}
		w.count("change", out, func() { w.passesOfOneChange(t, passes) })
		return out
	}
	few, many := cost(n), cost(10*n)
	for _, what := range []string{"steps", "elements", "allocations", memory} {
		if few, many := few["change: "+what], many["change: "+what]; many > 1.3*few {
			t.Errorf("%s: %.0f while %d Services wait, %.0f while %d wait", what, few, n, many, 10*n)
		}
	}
}

// BenchmarkPassWhileOthersWait is a pass with one change while many Services wait for later transactions.
func BenchmarkPassWhileOthersWait(b *testing.B) {
	for _, n := range []int{1200, 12_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := whileOthersWait(b, n)
			began := processorTime()
			b.ReportAllocs()
			for b.Loop() {
				w.passesOfOneChange(b, 1)
			}
			b.ReportMetric(float64(processorTime()-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// unsteady is a kernel that refuses or loses some transactions.
type unsteady struct {
	*memkernel.NFTables
	random *rand.Rand
}

func (k *unsteady) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	if k.random == nil || k.random.IntN(8) > 0 {
		return k.NFTables.Send(b)
	}
	switch k.random.IntN(3) {
	case 0:
		return kernel.Rejected, &nlmsg.Ack{Seq: b.First, Errno: unix.EBUSY}, unix.EBUSY
	case 1:
		_, _, _ = k.NFTables.Send(b)
	}
	return kernel.Unknown, nil, errors.New("injected: the answer was lost")
}

// lengthOf is that of a list or map that other packages keep.
func lengthOf(of any, field string) int { return reflect.ValueOf(of).Elem().FieldByName(field).Len() }

// TestWhoWaits makes random changes that do not fit into a transaction, reloads, and repairs, while the kernel refuses and loses
// transactions. After each pass that the kernel has, the dataplane names as waiting what is in the queue of the engine, and nobody
// keeps anything for other Services. In the end, nobody keeps anything at all.
func TestWhoWaits(t *testing.T) {
	waited, failed := 0, 0
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 1))
		k := &unsteady{NFTables: &memkernel.NFTables{}, random: random}
		engine, err := nft.New(k, nft.Options{Instance: 1, Piece: 15})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorldWith(func(o *Options) {
			o.Settings.Budgets.NamespaceChanges, o.Dataplane = 1e9, dataplane.New(dataplane.Options{Ruleset: engine})
		})
		w.store.MarkSynced()
		var names []state.Name
		for i := range 12 {
			names = append(names, state.Name{Namespace: fmt.Sprint("tenant", i%4), Name: fmt.Sprint("s", i)})
		}
		check := func(when string) {
			t.Helper()
			var waits []string
			in, queue := map[string]bool{}, memkernel.Waiting(engine)
			for _, name := range names {
				if w.passes.queue.waiting.Has(name) {
					waits, in[name.Namespace] = append(waits, name.String()), true
				}
			}
			slices.Sort(waits)
			if !slices.Equal(waits, queue) {
				t.Fatalf("%s: %v are in the queue, and %v are known to wait", when, queue, waits)
			}
			for _, name := range names {
				if w.passes.queue.waiting.In(name.Namespace) != in[name.Namespace] {
					t.Fatalf("%s: Services of namespace %s wait: %t", when, name.Namespace, in[name.Namespace])
				}
			}
			for what, n := range map[string]int{
				"changes": len(w.passes.queue.held), "triggers": lengthOf(&w.passes.triggers, "waiting"), "payers": lengthOf(w.passes.accounts, "payers"),
			} {
				if n > len(waits) {
					t.Fatalf("%s: %s of %d Services are kept, and %d wait", when, what, n, len(waits))
				}
			}
			if n := len(w.passes.queue.taken) + lengthOf(&w.passes.triggers, "pending"); n > 0 {
				t.Fatalf("%s: the next pass walks over %d changes", when, n)
			}
			waited += len(waits)
		}
		for step := range 300 {
			name := names[random.IntN(len(names))]
			switch what := random.IntN(20); {
			case what == 0:
				w.store.DeleteService(name)
			case what == 1:
				s := *w.settings
				s.DropInvalid = step%2 == 0
				w.reconfigure(&s)
			case what == 2:
				w.store.SetServiceCIDRs([]netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(random.IntN(3)), 0, 0}), 16)})
			case what == 3:
				w.repairs.repair(dataplane.Interference{Replaced: true})
			case what < 9:
				w.serveAtRandom(random, name)
			}
			if err := w.pass(); err != nil {
				failed++
				continue
			}
			check(fmt.Sprintf("seed %d, step %d", seed, step))
		}
		k.random = nil
		for n := 0; w.continues() || w.pendingServices() > 0 || n < 2; n++ {
			w.pace.failures = 0
			w.mustApply(t)
			if check("in the end"); n == 1000 {
				t.Fatalf("seed %d: %d Services are pending for ever", seed, w.pendingServices())
			}
		}
		if n := len(w.passes.queue.held) + lengthOf(&w.passes.triggers, "waiting") + lengthOf(w.passes.accounts, "payers"); n > 0 {
			t.Errorf("seed %d: nothing waits, and something is kept of %d Services", seed, n)
		}
	}
	if t.Logf("%d times a Service waited, and %d passes failed", waited, failed); waited < 1000 || failed < 50 {
		t.Error("the test shows too little")
	}
}

// serveAtRandom gives a Service ports and endpoints, some of both families, some with hash tables.
func (w *world) serveAtRandom(random *rand.Rand, name state.Name) {
	svc := service("", "10.96.0.1", 1)
	svc.Name, svc.Ports = name, nil
	last := byte(1 + len(name.Name)*16 + int(name.Name[len(name.Name)-1]-'0'))
	svc.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, last}), netip.AddrFrom16([16]byte{0: 0xfd, 15: last})}
	if random.IntN(4) == 0 {
		svc.Balancing.Scheduler = "mh"
	}
	for i := range 1 + random.IntN(6) {
		svc.Ports = append(svc.Ports, state.ServicePort{Name: fmt.Sprint("p", i), Protocol: state.TCP, Port: uint16(1 + i)})
	}
	if random.IntN(3) == 0 {
		svc.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(3))})} // others ask for it, too
	}
	w.store.SetService(svc, nil)
	for i, family := range []state.Family{state.IPv4, state.IPv6}[random.IntN(2):] {
		sl := &state.Slice{
			Name: state.Name{Namespace: name.Namespace, Name: fmt.Sprint(name.Name, "-", i)}, Service: name, Family: family,
			Weight: state.DefaultWeight, Trigger: time.Now().Add(time.Hour),
		}
		for _, p := range svc.Ports {
			sl.Ports = append(sl.Ports, state.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: 8080})
		}
		for n := range 1 + random.IntN(4) {
			addr := netip.AddrFrom4([4]byte{10, 0, byte(random.IntN(3)), byte(n)})
			if family == state.IPv6 {
				addr = netip.AddrFrom16([16]byte{0: 0xfd, 13: 1, 14: byte(random.IntN(3)), 15: byte(n)})
			}
			sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: addr, Ready: true, Serving: true})
		}
		w.store.SetSlice(sl, nil)
	}
}
