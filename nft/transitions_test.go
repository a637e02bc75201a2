//go:build !nokernel

package nft

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	transitionSeed  = flag.Uint64("transition-seed", 1, "first seed of the random transitions")
	transitionSeeds = flag.Uint64("transition-seeds", 4, "how many seeds of random transitions to run")
	transitionSteps = flag.Int("transition-steps", 30, "transactions for each seed")
)

// TestTransitions makes random changes, several in each transaction. After each transaction, the kernel must have
// exactly what the engine has in its ledger. It must mean the same as a new build of the same state. And nft must
// arrive at the same tables when it gets the printed transactions. Now and then, another engine goes on.
func TestTransitions(t *testing.T) {
	for seed := *transitionSeed; seed < *transitionSeed+*transitionSeeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(seed)
			n, others := newNamespace(t), [3]*namespace{newNamespace(t), newNamespace(t), newNamespace(t)}
			e := n.engine(t)
			for step := range *transitionSteps {
				if step%10 == 9 {
					e = w.restart(t, n, e)
				}
				for range 1 + w.rand.IntN(6) {
					w.change(t, e)
				}
				r := mustApply(t, e)
				others[2].replay(t, r.Text(), e)
				if step > 0 && r.Full != w.expectFull {
					t.Fatalf("step %d: whole tables written: %t, expected: %t", step, r.Full, w.expectFull)
				}
				w.expectFull = false
				w.compare(t, step, n, e, others)
			}
		})
	}
}

// restart makes another engine, which gets all ports in another order.
func (w *world) restart(t *testing.T, n *namespace, old *Engine) *Engine {
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	e := n.engine(t)
	for _, p := range w.ports {
		mustSet(t, e, p)
	}
	e.SetGlobals(w.globals)
	w.expectFull = true
	return e
}

// compare compares the kernel with the ledger, with the printed transactions, and with a new build.
func (w *world) compare(t *testing.T, step int, n *namespace, e *Engine, others [3]*namespace) {
	t.Helper()
	listed := parseListing(t, n.list(t))
	others[0].loadLedger(t, e)
	if diff := cmp.Diff(parseListing(t, others[0].list(t)), listed); diff != "" {
		t.Fatalf("step %d: the kernel differs from the ledger (- ledger, + kernel):\n%s", step, diff)
	}
	if diff := cmp.Diff(listed, parseListing(t, others[2].list(t))); diff != "" {
		t.Fatalf("step %d: the texts of the transactions lead to other tables (- kernel, + nft):\n%s", step, diff)
	}
	if step%3 != 0 {
		return // to save time; later steps show the errors of earlier ones
	}
	others[1].nft(t, "flush", "ruleset")
	fresh := others[1].engine(t)
	defer fresh.Close()
	example{ports: slices.Collect(maps.Values(w.ports)), globals: w.globals}.install(t, fresh)
	if diff := cmp.Diff(meaningOf(t, parseListing(t, others[1].list(t))), meaningOf(t, listed)); diff != "" {
		t.Fatalf("step %d: a new build means something else (- new build, + kernel):\n%s", step, diff)
	}
}

// loadLedger has nft load the engine's ledger.
func (n *namespace) loadLedger(t *testing.T, e *Engine) {
	t.Helper()
	n.nft(t, "flush", "ruleset")
	ip, ip6, _ := strings.Cut(e.render(), "table ip6 ")
	n.load(t, ip)
	n.load(t, "table ip6 "+ip6) // separately: both together are too large for the socket of an ordinary user
}

// replay has nft make the changes of a printed transaction. That works only for elements: nft (1.0.6 and 1.1.3) accepts
// a rule that translates by a map only together with the map, and not if the map is in the kernel already.
func (n *namespace) replay(t *testing.T, text string, e *Engine) {
	t.Helper()
	if strings.Contains(text, "add rule") {
		n.loadLedger(t, e)
		return
	}
	n.load(t, text)
}
