package nft

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// leaver is an engine with Services whose hash tables have more slots than a piece, one that shares the table of another, and
// one whose table has ports. The Service of another tenant stays.
type leaver struct {
	*Memory
	stays contents.Port
}

const leavers = 4

func newLeaver(t *testing.T) *leaver {
	t.Helper()
	m := &leaver{OpenMemory(Options{}), hashPort("stays:p", 99, 80, 1, 2)}
	mustSet(t, m.Engine, m.stays)
	for i := range leavers {
		endpoints := upTo(18 + i)
		if i == 3 {
			endpoints = upTo(18)
		}
		p := hashPort(fmt.Sprintf("leaves%d:p", i), 1+i, uint16(8000+i), endpoints...)
		if i == 2 {
			p.Cluster[5].Addr = netip.AddrPortFrom(p.Cluster[5].Addr.Addr(), 81)
		}
		mustSet(t, m.Engine, p)
	}
	mustApply(t, m.Engine)
	m.expectCounts(t, "at first", fmt.Sprintf("5 pools, %d slots, 4 ports, %d endpoints", 2*16381+4093, 5+16381))
	return m
}

// all deletes all Services but the one that stays. n applies follow.
func (m *leaver) all(t *testing.T, n int) *leaver {
	t.Helper()
	for i := range leavers {
		m.Delete(program.IPv4, fmt.Sprintf("ns/leaves%d:p", i))
	}
	for range n {
		mustApply(t, m.Engine)
	}
	return m
}

func (m *leaver) restarted(t *testing.T) *leaver {
	t.Helper()
	m = &leaver{restart(t, m.Memory), m.stays}
	mustSet(t, m.Engine, m.stays)
	if r := mustApply(t, m.Engine); !r.Full || r.Deleted > 100 {
		t.Errorf("the first transaction deletes %d elements", r.Deleted)
	}
	return m
}

// onlyStays checks that the kernel has nothing but the Service that stays.
func (m *leaver) onlyStays(t *testing.T, when string) {
	t.Helper()
	m.expectCounts(t, when, "1 pools, 4093 slots, 1 ports, 1 endpoints")
	m.checkHashed(t, when, map[string]contents.Port{m.stays.Name: m.stays})
	m.checkNothingFound(t, when)
}

func (m *Memory) checkNothingFound(t *testing.T, when string) {
	t.Helper()
	if i, err := m.FindInterference(); err != nil || !i.Empty() {
		t.Errorf("%s: the check finds %s, %v", when, i.String(), err)
	}
}

// TestTablesLeaveInPieces: the hash tables of deleted Services go in pieces, other changes go between, and the namespace of
// the deleted Services pays.
func TestTablesLeaveInPieces(t *testing.T) {
	m := newLeaver(t).all(t, 1)
	m.expectCounts(t, "marked", fmt.Sprintf("4 pools, %d slots, 4 ports, %d endpoints", 2*16381+4093, 1+16381))
	p := m.stays
	p.Cluster = slices.Clone(p.Cluster)
	p.Cluster[1].Addr = netip.MustParseAddrPort("10.9.0.9:80")
	mustSet(t, m.Engine, p)
	m.stays = p
	r := mustApply(t, m.Engine)
	if r.Added == 0 || r.Added > 4093 || r.Deleted > piece+r.Added+10 || r.Deleted < piece {
		t.Errorf("a change of another tenant: %d elements added, %d deleted", r.Added, r.Deleted)
	}
	paid := 0
	for id, n := range r.Changed {
		switch {
		case id.Name == p.Name && n.Sum() == 2*r.Added: // of its own table
		case strings.HasPrefix(id.Name, "ns/leaves") && id.Family == program.IPv4:
			paid += n.Sum()
		default:
			t.Errorf("%v pays for %d slots", id, n)
		}
	}
	if paid != 3*16381 {
		t.Errorf("they pay for %d slots", paid)
	}
	m.checkNothingFound(t, "in the middle")
	m.checkHashed(t, "in the middle", map[string]contents.Port{p.Name: p})
	if pieces := letLeave(t, m.Engine); pieces < 3*16381/piece-1 {
		t.Errorf("all are gone after %d more pieces", pieces)
	}
	m.onlyStays(t, "in the end")
	if r := mustApply(t, m.Engine); r.Bytes != 0 || r.Leaving {
		t.Errorf("nothing is left, and %d bytes are sent", r.Bytes)
	}
}

// TestTableReturns: a table that a pool gets again before its first piece is gone stays as it is. Later, the pool gets a table with
// another number.
func TestTableReturns(t *testing.T) {
	back := hashPort("leaves1:p", 2, 8001, upTo(19)...)
	for applies := 1; applies < 5; applies++ {
		m := newLeaver(t).all(t, applies)
		mustSet(t, m.Engine, back)
		r := mustApply(t, m.Engine)
		if again := r.Added > 16381; again != (applies > 1) || r.Deleted > piece+10 {
			t.Errorf("after %d transactions: %d elements added, %d deleted", applies, r.Added, r.Deleted)
		}
		m.checkHashed(t, "it is back", map[string]contents.Port{m.stays.Name: m.stays, back.Name: back})
		letLeave(t, m.Engine)
		m.expectCounts(t, "the others are gone", fmt.Sprintf("2 pools, %d slots, 2 ports, 2 endpoints", 16381+4093))
		m.checkHashed(t, "the others are gone", map[string]contents.Port{m.stays.Name: m.stays, back.Name: back})
		m.checkNothingFound(t, "the others are gone")
	}
}

// TestRestartWhileTablesLeave: another process goes on where the last one was killed, and has the tables of Services leave in
// pieces that were deleted while no process ran.
func TestRestartWhileTablesLeave(t *testing.T) {
	for _, applies := range []int{0, 1, 2, 4, 11} {
		m := newLeaver(t)
		if applies > 0 {
			m.all(t, applies)
		}
		m = m.restarted(t)
		m.checkNothingFound(t, "after a restart")
		m.checkHashed(t, "after a restart", map[string]contents.Port{m.stays.Name: m.stays})
		mustApply(t, m.Engine)
		m = m.restarted(t) // once more
		again := hashPort("again:p", 50, 80, upTo(30)...)
		mustSet(t, m.Engine, again)
		mustApply(t, m.Engine)
		m.checkHashed(t, "another table is new", map[string]contents.Port{m.stays.Name: m.stays, again.Name: again})
		m.Delete(program.IPv4, again.Name)
		letLeave(t, m.Engine)
		m.onlyStays(t, fmt.Sprintf("killed after %d transactions", applies))
	}
}

// TestEditsWhileTablesLeave: another process changes what is left of the tables. However the engine learns of it, the tables
// leave, and nothing else changes.
func TestEditsWhileTablesLeave(t *testing.T) {
	for way, heard := range waysToLearn() {
		t.Run(way, func(t *testing.T) {
			m := newLeaver(t).all(t, 3)
			touched := m.damage(t, rand.New(rand.NewPCG(1, 0)))
			r, err := m.Repair(heard(touched))
			for ; err == nil && r.More; r, err = m.RepairMore() {
			}
			if err != nil {
				t.Fatal(err)
			}
			m.checkNothingFound(t, "after the repair")
			letLeave(t, m.Engine)
			m.onlyStays(t, "in the end")
		})
	}
	t.Run("it does not learn of it", func(t *testing.T) {
		m := newLeaver(t).all(t, 3)
		m.damage(t, rand.New(rand.NewPCG(1, 0)))
		if _, err := m.Apply(); err == nil {
			t.Fatal("slots that are gone are deleted, and the kernel does not refuse that")
		}
		if r := mustApply(t, m.Engine); !r.Full || r.Leaving {
			t.Errorf("everything was written: %t, something is left: %t", r.Full, r.Leaving)
		}
		m.onlyStays(t, "everything is written")
	})
}

// TestCompareWhileTablesLeave: the engine compares everything for other reasons, and the tables leave in pieces all the same.
func TestCompareWhileTablesLeave(t *testing.T) {
	for applies := range 5 {
		m := newLeaver(t).all(t, applies)
		m.SetGlobals(contents.Globals{MasqueradeAll: true})
		if r := mustApply(t, m.Engine); !r.Full || r.Deleted > 100 || r.Added > 100 || !r.Leaving {
			t.Errorf("after %d transactions: %d elements added, %d deleted, something is left: %t", applies, r.Added, r.Deleted, r.Leaving)
		}
		letLeave(t, m.Engine)
		m.onlyStays(t, "in the end")
	}
}

// TestLeavingRowsAreAskedFor: a process that starts asks for the rows of large tables that leave, and reads no other slots. A dump
// takes time by the square of their number.
func TestLeavingRowsAreAskedFor(t *testing.T) {
	m := newLeaver(t).all(t, 3)
	k := undumpable{m.kernel, t}
	again := newEngine(k, Options{Instance: 2})
	if err := again.tables.Adopt(k); err != nil {
		t.Fatal(err)
	}
	mustSet(t, again, m.stays)
	if r := mustApply(t, again); r.Added+r.Deleted > 10 || !r.Leaving {
		t.Errorf("%d elements added, %d deleted, something is left: %t", r.Added, r.Deleted, r.Leaving)
	}
	letLeave(t, again)
	m.expectCounts(t, "in the end", "1 pools, 4093 slots, 1 ports, 1 endpoints")
}
