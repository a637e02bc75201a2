//go:build !nokernel

package nft

import (
	"strconv"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/table"
)

// sweepEngine makes tables with service ports of all kinds.
func sweepEngine(t testing.TB, n *namespace) *Engine {
	e := n.engine(t)
	e.SetGlobals(packetGlobals())
	mustSet(t, e, restartPorts(program.IPv4)...)
	mustApply(t, e)
	for range 2 * table.CheckParts {
		if intact, err := e.Intact(); !intact || err != nil {
			t.Fatalf("before the edit: intact %t, %v", intact, err)
		}
	}
	return e
}

// TestSweepFindsEdits edits elements while nobody listens to the messages of the kernel. One round of Checks finds the
// edit, and a repair undoes it.
func TestSweepFindsEdits(t *testing.T) {
	for name, script := range map[string]string{
		"another pool":       "services", // exchanges the data of two elements
		"another endpoint":   "endpoints",
		"another slot":       "sticky-slots",
		"another token":      "sticky-endpoints",
		"another class":      "pools",
		"another hash table": "hash-tables",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t)
			e := sweepEngine(t, n)
			before := n.list(t)
			n.exchange(t, script)
			repairFound(t, e, table.CheckParts+1)
			compareListings(t, "after the repair", n.list(t), before)
		})
	}
}

// exchange exchanges the data of two elements of a map.
func (n *namespace) exchange(t *testing.T, set string) {
	t.Helper()
	elements := parseListing(t, n.nft(t, "list", "map", "ip", program.TableName, set))["ip map "+set].Elements
	first, data, _ := cutLast(elements[0], " : ")
	for _, other := range elements[1:] {
		second, otherData, _ := cutLast(other, " : ")
		if otherData == data {
			continue
		}
		key := func(s string) string { before, _, _ := strings.Cut(s, " comment"); return before }
		n.load(t, "delete element ip verdict "+set+" { "+key(first)+", "+key(second)+" }\n"+
			"add element ip verdict "+set+" { "+first+" : "+otherData+", "+second+" : "+data+" }\n")
		return
	}
	t.Fatalf("all elements of %s have the data %s", set, data)
}

// repairFound undoes what so many Checks find. Both tables need not be written for that.
func repairFound(t *testing.T, e *Engine, calls int) {
	t.Helper()
	for range calls {
		i, err := e.FindInterference()
		if err != nil {
			t.Fatal(err)
		}
		if i.Empty() {
			continue
		}
		r, err := e.Repair(i)
		for r.More && err == nil {
			r, err = e.RepairMore()
		}
		if err != nil || r.Full {
			t.Fatalf("%+v, %v", r, err)
		}
		return
	}
	t.Fatalf("%d Checks did not find the edit", calls)
}

// TestCountsFindElements adds an element that no service port has. Linux 6.16 and newer count the elements of a set.
func TestCountsFindElements(t *testing.T) {
	n := newNamespace(t)
	e := sweepEngine(t, n)
	was, err := e.conn.Survey(program.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	if len(was.Counts) == 0 {
		netns.SkipBefore(t, 6, 16, "count of the elements of a set")
	}
	before := n.list(t)
	n.load(t, "add element ip verdict services { 192.0.2.99 . tcp . 9 : 0:2 }\n")
	repairFound(t, e, 1)
	compareListings(t, "after the repair", n.list(t), before)
}

// BenchmarkCheck measures one call.
func BenchmarkCheck(b *testing.B) {
	for _, size := range []int{1000, 10000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			n := newNamespace(b)
			e := n.engine(b)
			growing(b, e, program.IPv4, 0, size, 10)
			for b.Loop() {
				if i, err := e.FindInterference(); !i.Empty() || err != nil {
					b.Fatal(i.String(), err)
				}
			}
		})
	}
}
