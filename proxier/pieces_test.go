package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// inPieces is a loop whose transactions have about so many changes, and a tenant's Service of TCP and UDP with many ports.
const (
	pieceSize  = 60
	piecePorts = 100
)

func inPieces(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := newWorldInPieces(pieceSize, change)
	w.store.SetService(pieceService(), nil)
	w.store.SetSlice(pieceSlice(1), nil)
	w.store.MarkSynced()
	w.mustApply(t)
	if w.pendingServices() != 0 {
		t.Fatal("the first pass is not complete")
	}
	return w
}

func pieceService() *state.Service {
	svc := service("many", "10.96.9.9", 1)
	svc.Namespace, svc.Ports = "tenant", nil
	for i := range piecePorts {
		svc.Ports = append(svc.Ports, state.ServicePort{Name: fmt.Sprint("p", i), Protocol: []state.Protocol{state.TCP, state.UDP}[i%2], Port: uint16(1 + i)})
	}
	return svc
}

// pieceSlice has other endpoints in each round.
func pieceSlice(round int) *state.Slice {
	sl := slice("many", fmt.Sprintf("10.0.%d.1", round), fmt.Sprintf("10.0.%d.2", round))
	sl.Namespace, sl.Service.Namespace, sl.Ports = "tenant", "tenant", nil
	sl.Trigger = time.Now().Add(time.Hour) // not from before the start
	for i, p := range pieceService().Ports {
		sl.Ports = append(sl.Ports, state.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: uint16(8000 + i)})
	}
	return sl
}

// has counts the ports of the tenant with the endpoints of a round.
func (w *world) has(t *testing.T, round int) (n int) {
	t.Helper()
	listing, err := w.rules.kernel.List(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range listing.Frontends {
		fe := &listing.Frontends[i]
		if serviceOf(fe.Name).Namespace == "tenant" && len(fe.Cluster) == 2 && fe.Cluster[0].Addr.Addr() == netip.AddrFrom4([4]byte{10, 0, byte(round), 1}) {
			n++
		}
	}
	return n
}

// TestPiecesOfAService: a Service whose change needs several transactions stays pending until the last one. Until then, its flows
// are not cleaned, nothing is said about how long it took, and changes of others go between and are confirmed.
func TestPiecesOfAService(t *testing.T) {
	w := inPieces(t, func(*Options) {})
	triggers := 0
	w.tenantCleaned(t)
	w.store.SetSlice(pieceSlice(2), nil)
	for pass := 1; ; pass++ {
		w.mustApply(t)
		done := w.watcher.passes[len(w.watcher.passes)-1]
		if n := done.Result.Added + done.Result.Deleted; n > pieceSize+20 {
			t.Fatalf("pass %d makes %d changes", pass, n)
		}
		n := w.has(t, 2)
		if old := w.has(t, 1); n+old != piecePorts {
			t.Fatalf("pass %d: of %d ports, %d have the new endpoints, and %d the old ones", pass, piecePorts, n, old)
		}
		triggers += len(done.Triggers)
		if n == piecePorts {
			if pass < 6 || w.continues() || w.pendingServices() != 0 || triggers != 1 {
				t.Errorf("pass %d is the last one: continues %t, %d pending, %d triggers", pass, w.continues(), w.pendingServices(), triggers)
			}
			break
		}
		if !w.continues() || w.pendingServices() != 1 || triggers > 0 {
			t.Fatalf("pass %d: continues %t, %d pending, %d triggers", pass, w.continues(), w.pendingServices(), triggers)
		}
		if w.tenantCleaned(t) {
			t.Fatalf("pass %d: flows are cleaned", pass)
		}
		if pass%3 != 0 {
			continue
		}
		other := service(fmt.Sprint("web", pass), fmt.Sprintf("10.96.1.%d", pass), 1)
		w.store.SetService(other, nil)
		w.mustApply(t)
		triggers += len(w.watcher.passes[len(w.watcher.passes)-1].Triggers)
		if got := w.rules.frontends(t)[other.String()+":http"]; len(got) != 1 || w.pendingServices() > 1 {
			t.Fatalf("pass %d: another Service waits: %v, %d pending", pass, got, w.pendingServices())
		}
	}
	if !w.tenantCleaned(t) {
		t.Error("the flows of the old endpoints stay")
	}
}

// tenantCleaned waits for the end of the cleanings that are under way, and reports whether flows of the tenant were cleaned since the
// last call. Those of others may be at any time.
func (w *world) tenantCleaned(t *testing.T) bool {
	t.Helper()
	for w.Proxier.flows.Done() != nil {
		w.Proxier.flows.Finish(<-w.Proxier.flows.Done())
	}
	of := w.flows.stale
	w.flows.stale = nil
	return slices.ContainsFunc(of, func(s conntrack.Stale) bool { return s.Concerns("tenant") })
}

// TestPieceFails: the kernel refuses a piece. Nothing is confirmed, and the next pass writes all that is left.
func TestPieceFails(t *testing.T) {
	w := inPieces(t, func(*Options) {})
	w.store.SetSlice(pieceSlice(2), nil)
	w.mustApply(t)
	w.rules.fail = 1
	if err := w.pass(); err == nil || w.pendingServices() != 1 {
		t.Fatalf("error %v, %d pending", err, w.pendingServices())
	}
	w.store.SetSlice(pieceSlice(3), nil)
	if err := w.Once(); err != nil || w.has(t, 3) != piecePorts || w.pendingServices() != 0 {
		t.Errorf("error %v, %d of %d ports, %d pending", err, w.has(t, 3), piecePorts, w.pendingServices())
	}
}

// TestRepairEndsPieces: another process replaces the tables while pieces wait. The repair writes all of them, and the next pass comes at
// once to confirm that.
func TestRepairEndsPieces(t *testing.T) {
	w := inPieces(t, func(*Options) {})
	w.store.SetSlice(pieceSlice(2), nil)
	w.mustApply(t)
	w.repairs.repair(dataplane.Interference{Replaced: true})
	if w.has(t, 2) != piecePorts || !w.continues() {
		t.Fatalf("%d of %d ports, another pass comes: %t", w.has(t, 2), piecePorts, w.continues())
	}
	if w.mustApply(t); w.pendingServices() != 0 || w.continues() {
		t.Errorf("%d pending, another pass comes: %t", w.pendingServices(), w.continues())
	}
}

// TestPiecesOverCome: newer changes of the same Service take the place of those that wait, and no port waits for ever.
func TestPiecesOverCome(t *testing.T) {
	w := inPieces(t, func(*Options) {})
	for round := 2; round < 40; round++ {
		w.store.SetSlice(pieceSlice(round), nil)
		w.mustApply(t)
	}
	if w.has(t, 1) != 0 {
		t.Errorf("%d ports still have the endpoints of the first round", w.has(t, 1))
	}
	if err := w.Once(); err != nil || w.has(t, 39) != piecePorts || w.pendingServices() != 0 {
		t.Errorf("error %v, %d of %d ports, %d pending", err, w.has(t, 39), piecePorts, w.pendingServices())
	}
	w.store.DeleteService(pieceService().Name)
	if w.mustApply(t); w.pendingServices() != 1 {
		t.Error("all ports are gone with one transaction")
	}
	if err := w.Once(); err != nil || len(w.rules.frontends(t)) != 0 {
		t.Errorf("error %v, %v", err, w.rules.frontends(t))
	}
}
