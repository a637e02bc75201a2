//go:build !nokernel

package nft

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// largeTables are Services with a hash table of 65,521 slots each.
func largeTables(n int) (list []contents.Port) {
	for i := range n {
		endpoints := upTo(251)
		for j := range endpoints {
			endpoints[j] += i << 8
		}
		list = append(list, hashPort(fmt.Sprintf("large%d:p", i), 1+i, 80, endpoints...))
	}
	return list
}

// TestLargeTablesLeave: the kernel deletes hash tables in pieces. In the middle, the engine is killed, and the next one asks for the
// rows that are left. It finds them, and the counts of the sets are always as they should be.
func TestLargeTablesLeave(t *testing.T) {
	n := newNamespace(t)
	e, list := n.engine(t), largeTables(3)
	stays := hashPort("stays:p", 99, 80, 1, 2)
	mustSet(t, e, append(list, stays)...)
	mustApply(t, e)
	for i := range list {
		e.Delete(program.IPv4, list[i].Name)
	}
	check := func(when string, slots int) {
		t.Helper()
		if i, err := e.FindInterference(); err != nil || !i.Empty() {
			t.Errorf("%s: the check finds %s, %v", when, i.String(), err)
		}
		was, err := e.conn.SurveySets(program.IPv4)
		if is, counted := was.Counts[program.HashSlots.Name()]; err != nil || counted && is != slots {
			t.Errorf("%s: %d slots, %v; want %d", when, is, err, slots)
		}
	}
	mustApply(t, e)
	for range 5 {
		mustApply(t, e)
	}
	check("in the middle", 3*65521+4093-5*piece)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = n.engine(t)
	mustSet(t, e, stays)
	if r := mustApply(t, e); !r.Full || r.Added+r.Deleted > 10 || !r.Leaving {
		t.Errorf("after a restart: %d elements added, %d deleted, something is left: %t", r.Added, r.Deleted, r.Leaving)
	}
	check("after a restart", 3*65521+4093-5*piece)
	letLeave(t, e)
	check("in the end", 4093)
}

// TestLargeTablesCome: the kernel adds hash tables in pieces. The engine is killed in between, and the next one asks for what there is,
// which leaves in pieces.
func TestLargeTablesCome(t *testing.T) {
	n, list := newNamespace(t), largeTables(2)
	list[1].Name = "other/" + list[1].Name
	stays := hashPort("stays:p", 99, 80, 1, 2)
	for _, applies := range []int{2, 30, 67} {
		e := n.engine(t)
		mustSet(t, e, stays)
		mustApply(t, e)
		e.piece = piece
		mustSet(t, e, list...)
		for range applies {
			if r := mustApply(t, e); r.Full || r.Added > piece+20 {
				t.Fatalf("a transaction adds %d elements", r.Added)
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = n.engine(t)
		mustSet(t, e, stays)
		if r := mustApply(t, e); !r.Full || r.Added+r.Deleted > 20 || !r.Leaving {
			t.Errorf("killed after %d pieces: %d elements added, %d deleted, something is left: %t", applies, r.Added, r.Deleted, r.Leaving)
		}
		letLeave(t, e)
		was, err := e.conn.SurveySets(program.IPv4)
		if is, counted := was.Counts[program.HashSlots.Name()]; err != nil || counted && is != 4093 {
			t.Errorf("killed after %d pieces: %d slots in the end, %v", applies, is, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkTablesLeave measures how long the kernel is held by the pieces in which the tables of 15 Services with 900 endpoints
// leave, while it reports them to a watcher.
func BenchmarkTablesLeave(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		e, list := newNamespace(b).engine(b), largeTables(15)
		w, err := e.Watch()
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			for err := error(nil); err == nil; {
				_, err = w.Next(b.Context())
			}
		}()
		for i := range list {
			mustSet(b, e, list[i])
			mustApply(b, e)
		}
		for i := range list {
			e.Delete(program.IPv4, list[i].Name)
		}
		mustApply(b, e)
		b.StartTimer()
		var took []time.Duration
		for left := true; left; {
			r := mustApply(b, e)
			took, left = append(took, r.InKernel), r.Leaving
		}
		b.StopTimer()
		slices.Sort(took)
		for name, at := range map[string]int{"p50-ms": len(took) / 2, "p99-ms": len(took) * 99 / 100, "slowest-ms": len(took) - 1} {
			b.ReportMetric(float64(took[at].Microseconds())/1000, name)
		}
		b.ReportMetric(float64(len(took)), "pieces")
		b.StartTimer()
		w.Close()
	}
}
