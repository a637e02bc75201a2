//go:build e2e

package random

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/program"
)

var (
	duration = flag.Duration("time", 20*time.Second, "how long to make random changes")
	seed     = flag.Uint64("seed", 0, "draws the changes; 0: by the clock")
	backend  = flag.String("backend", "", "the --backend of verdict; empty: its default")
	clock    = flag.Bool("clock", false, "set the clock of this machine forward and back; for a machine that nobody else uses")
)

// binary is built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(netns.Enter(func() int { return program.Main(m, &binary) }))
}

// TestRandomChanges makes random changes for a time.
func TestRandomChanges(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed %d", *seed)
	n := newNode(t, rand.New(rand.NewPCG(*seed, 21)))
	n.equal("the untouched Services")
	before := n.elements()
	clients := watch(t, n.world)
	steps := map[string]int{}
	for end := time.Now().Add(*duration); time.Now().Before(end); {
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
	if diff := cmp.Diff(before, n.elements()); diff != "" {
		t.Errorf("elements that are left (- before, + after):\n%s\n%s", diff, n.history)
	}
	t.Logf("%d steps %v, %s", len(n.history), steps, clients)
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
