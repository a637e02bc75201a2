//go:build e2e || ipvs

package random

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/program"
)

var (
	seed  = flag.Uint64("seed", 0, "draws the changes; 0: by the clock")
	clock = flag.Bool("clock", false, "set the clock of this machine forward and back; for a machine that nobody else uses")
)

// binary is built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(netns.Enter(func() int { return program.Main(m, &binary) }))
}

// run makes random changes as long as more reports true. Its argument is the number of steps so far.
func run(t *testing.T, backend string, more func(steps int) bool) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed %d", *seed)
	n := newNode(t, rand.New(rand.NewPCG(*seed, 21)), backend)
	n.equal("the untouched Services")
	before := n.elements()
	clients := n.watch(lab.Families()...)
	steps := map[string]int{}
	for more(len(n.history)) {
		what := ""
		for range 1 + n.r.IntN(2)*n.r.IntN(4) { // often one change, sometimes several at once
			kind := n.draw()
			steps[kind.name]++
			what += kind.name + " " + kind.make(n) + "; "
		}
		n.note(what)
		n.equal(what)
		clients.noticeNothing(n.history)
	}
	n.removeAll()
	clients.end(n.history)
	n.sameElements(before)
	t.Logf("%d steps %v, %s", len(n.history), steps, clients)
}

// sameElements waits until all sets have as many elements as before. IPVS keeps a virtual server, and nft the guard of its
// address, until the kernel has forgotten the last connection: two minutes after its end, seen within another 30 seconds.
func (n *node) sameElements(before map[string]int) {
	n.Helper()
	for late := time.Now().Add(2 * patience); ; time.Sleep(time.Second) {
		diff := cmp.Diff(before, n.elements())
		if diff == "" {
			return
		}
		if time.Now().After(late) {
			n.Fatalf("elements that are left (- before, + after):\n%s\n%s", diff, n.history)
		}
	}
}

// history is what the steps did.
type history []string

// String is the last steps.
func (h history) String() string {
	text := fmt.Sprintf("seed %d, the last steps:", *seed)
	for i := max(0, len(h)-8); i < len(h); i++ {
		text += fmt.Sprintf("\n%d. %s", i+1, h[i])
	}
	return text
}
