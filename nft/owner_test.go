//go:build !nokernel

package nft

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// ownerEngine opens an engine that owns its tables. Kernels before 6.9 cannot, which "make e2e-kernels" shows.
func ownerEngine(t *testing.T, n *namespace) *Engine {
	t.Helper()
	e, err := Open(Options{NetNS: n.Fd(), Owner: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if !e.CanOwn() {
		netns.SkipBefore(t, 6, 9, "tables that have an owner and persist")
	}
	return e
}

// checkOwned checks whether the kernel lets only one engine change both tables.
func checkOwned(t *testing.T, e *Engine, want bool) {
	t.Helper()
	owned := true
	for _, tb := range e.tables {
		found, err := e.conn.SurveyTable(tb.Family)
		if err != nil {
			t.Fatal(err)
		}
		owned = owned && found.Flags&program.OwnerFlag != 0
	}
	if owned != want {
		t.Fatalf("owned %t, want %t", owned, want)
	}
}

// TestOwner has others try to change the tables of an engine that owns them.
func TestOwner(t *testing.T) {
	n := newNamespace(t)
	e := ownerEngine(t, n)
	mustSet(t, e, manyPorts(program.IPv4, 0, 3)...)
	mustApply(t, e)
	checkOwned(t, e, true)
	before := n.list(t)

	for _, script := range []string{
		"delete table ip verdict", "flush table ip verdict", "flush map ip verdict services",
		"add element ip verdict cluster-ips { 10.9.9.9 }", "flush ruleset\n" + before,
	} {
		if err := n.Load(script); err == nil || !strings.Contains(err.Error(), "Operation not permitted") {
			t.Errorf("%q: error %v; want that it is not permitted", script, err)
		}
	}
	n.load(t, "table ip other { }")
	n.nft(t, "flush", "ruleset")
	compareListings(t, "others have changed the tables", n.list(t), before)

	other := ownerEngine(t, n)
	if r, err := other.Apply(); r.Outcome != kernel.Rejected || !errors.Is(err, kernel.ErrOwned) {
		t.Errorf("a second engine: outcome %s, error %v; want that it is rejected because of the owner", r.Outcome, err)
	}
	if err := kernel.Cleanup(kernel.Options{NetNS: n.Fd()}); !errors.Is(err, kernel.ErrOwned) {
		t.Errorf("cleanup: error %v; want one that names the owner", err)
	}
	mustSet(t, e, manyPorts(program.IPv4, 3, 3)...)
	mustApply(t, e)
}

// TestOwnerTakesOver starts engines with and without ownership one after the other.
func TestOwnerTakesOver(t *testing.T) {
	n := newNamespace(t)
	plain := n.engine(t)
	mustSet(t, plain, manyPorts(program.IPv4, 0, 3)...)
	mustApply(t, plain)
	plain.Close()

	for _, restart := range []string{"tables without an owner are made again", "tables of an owner that ended are adopted"} {
		e := ownerEngine(t, n)
		mustSet(t, e, manyPorts(program.IPv4, 0, 3)...)
		mustApply(t, e)
		t.Log(restart)
		checkOwned(t, e, true)
		e.Close()
	}
	again := n.engine(t)
	mustSet(t, again, manyPorts(program.IPv4, 0, 4)...)
	mustApply(t, again)
	fresh := newNamespace(t)
	fresh.load(t, again.render())
	compareListings(t, "an engine without ownership cannot use the tables", withoutFlags(n.list(t)), fresh.list(t))
	if err := kernel.Cleanup(kernel.Options{NetNS: n.Fd()}); err != nil {
		t.Error(err)
	}
}

// withoutFlags leaves out the flags of tables; nft 1.0.6 does not know "persist".
func withoutFlags(listing string) string {
	var kept []string
	for line := range strings.Lines(listing) {
		if !strings.HasPrefix(line, "\tflags ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestOwnerKeepsAffinity starts an owner over tables without one, while clients have affinity there. The tables stay as
// they are, because the kernel could only make them again, without the entries of the clients.
func TestOwnerKeepsAffinity(t *testing.T) {
	n := newNamespace(t)
	port := stickyPort(program.IPv4, tcp, time.Hour)
	plain := n.engine(t)
	mustSet(t, plain, port)
	mustApply(t, plain)
	n.nft(t, "add", "element", "ip", program.TableName, program.Affinity.Name(), "{ 0:2 . 77 timeout 1h : 0:2 }")
	plain.Close()

	e := ownerEngine(t, n)
	mustSet(t, e, port)
	mustApply(t, e)
	checkOwned(t, e, false)
	if list := n.nft(t, "list", "map", "ip", program.TableName, program.Affinity.Name()); !strings.Contains(list, " . 77 ") {
		t.Errorf("the client's entry is gone:\n%s", list)
	}
	e.distrust()
	mustApply(t, e)
	checkOwned(t, e, false)
}
