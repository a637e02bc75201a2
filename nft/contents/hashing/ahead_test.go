package hashing

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

const aheadPiece = 500 // a table of three endpoints has 4,093 slots

func newTestTables() *Tables {
	h := NewTables(ledger.New(program.IPv4, func(string, *ledger.Record) string { return "" }))
	return &h
}

// awaitTables has tables of three endpoints each come for service ports of a namespace.
func awaitTables(h *Tables, namespace string, number, n int) (list []*Awaited) {
	for i := range n {
		endpoints := maglevEndpoints(3)
		for j := range endpoints {
			endpoints[j].Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(number), byte(i >> 8), byte(i)}), uint16(8080+j))
		}
		list = append(list, h.Await(nil, fmt.Sprintf("%s/%d:p", namespace, i), endpoints))
	}
	return list
}

// slotsOf is how many slots of tables are there, and how many tables have been looked at.
func slotsOf(list []*Awaited) (n, seen int) {
	for _, a := range list {
		if a.table.slots != nil {
			seen++
			n += len(a.table.slots.bySlot)
		}
	}
	return n, seen
}

// TestWriteAheadLooksAtFew: a transaction looks only at the tables that it writes, however many wait.
func TestWriteAheadLooksAtFew(t *testing.T) {
	h := newTestTables()
	list := awaitTables(h, "tenant", 1, 3000)
	for n := aheadPiece; n <= 20*aheadPiece; n += aheadPiece {
		if got := h.WriteAhead(aheadPiece, aheadPiece); got != aheadPiece {
			t.Fatalf("%d slots were written, want %d", got, aheadPiece)
		}
		h.Finish()
		if slots, seen := slotsOf(list); slots != n || seen != (n+4092)/4093 {
			t.Fatalf("%d slots of %d tables are there, want %d of %d", slots, seen, n, (n+4092)/4093)
		}
	}
}

// TestNamespacesInTurn: each namespace gets as many slots as the others, as long as tables of it wait.
func TestNamespacesInTurn(t *testing.T) {
	h := newTestTables()
	lists := [][]*Awaited{awaitTables(h, "tenant", 1, 9), awaitTables(h, "shop", 2, 2), awaitTables(h, "bank", 3, 2)}
	for n := 0; ; n++ {
		counts := [3]int{}
		for i, list := range lists {
			counts[i], _ = slotsOf(list)
		}
		const all = 2 * 4093
		if low, high := min(counts[1], counts[2]), max(counts[0], counts[1], counts[2]); low < all && high > low+aheadPiece {
			t.Fatalf("after %d transactions, the namespaces have %v slots", n, counts)
		}
		if counts == [3]int{9 * 4093, all, all} {
			break
		}
		h.WriteAhead(aheadPiece, aheadPiece)
		h.Finish()
	}
	for _, list := range lists {
		for _, a := range list {
			if !a.Ready() {
				t.Errorf("table %d is not ready", a.table.number)
			}
			a.Release()
		}
	}
	h.checkLeft(t)
}

// TestTableForAMoment: a pool has a table that was written ahead, and has it no more before the transaction; then nobody waits for it.
func TestTableForAMoment(t *testing.T) {
	h := newTestTables()
	a := awaitTables(h, "tenant", 1, 1)[0]
	for !a.Ready() {
		h.WriteAhead(aheadPiece, aheadPiece)
		h.Finish()
	}
	pool := NewPool(7, h.ledger.Open("shop/a:p"))
	h.Update(pool, a.table.endpoints)
	h.Update(pool, []contents.Endpoint{})
	a.Release()
	h.Finish()
	h.checkLeft(t)
}

// checkLeft expects no table after those without a pool have left.
func (h *Tables) checkLeft(t *testing.T) {
	t.Helper()
	for range 2 {
		h.Finish()
	}
	for h.Leaving() {
		if h.DeletePiece(aheadPiece) == 0 {
			t.Fatalf("a table leaves that has no slots: %+v", h.leaving[0])
		}
	}
	if len(h.byKey)+len(h.used)+h.coming.count+h.Count() > 0 {
		t.Errorf("tables are left: %d by key, %d by number, %d that come, %d in all", len(h.byKey), len(h.used), h.coming.count, h.Count())
	}
}
