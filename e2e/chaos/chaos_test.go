//go:build e2e

package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/verdict-proxy/verdict/e2e/chaos/inject"
)

// The flags of the test.
var (
	seed      = flag.Uint64("seed", 0, "the `NUMBER` that decides the faults and the objects; 0: a new one")
	rounds    = flag.Int("rounds", 200, "the `NUMBER` of rounds")
	first     = flag.Int("first", 1, "the `NUMBER` of the first round, to repeat the end of a run")
	binaries  = flag.String("binaries", "", "`DIR` with etcd and kube-apiserver (e2e/controlplane/build.sh)")
	program   = flag.String("verdict", "", "the `FILE` with the program under test")
	others    = flag.String("other", "", "the `FILES` with other versions of the program, as absolute paths separated by commas, which take turns with it in one more fault")
	only      = flag.String("only", "", "draw only faults whose names contain one of these `WORDS`, separated by commas")
	manifests = flag.Bool("manifests", false, "the daemon follows a folder of manifests instead of an API server")
	soak      = flag.Duration("soak", 0, "instead of rounds, watch the daemon for a `TIME`: memory, descriptors and goroutines must stay flat")
)

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == inject.BecomeWord {
		fmt.Fprintln(os.Stderr, "chaos: become verdict:", inject.Become(os.Args[2:]))
		os.Exit(1)
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // objects are strange on purpose
	os.Exit(m.Run())
}

// TestChaos plays the rounds, or soaks the daemon, and logs a table. The logs stay after a failure.
func TestChaos(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	faults := selectedFaults()
	if len(faults) == 0 {
		t.Fatalf("-only: no fault has a name with %q", *only)
	}
	logs, err := os.MkdirTemp("", "verdict-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			os.RemoveAll(logs)
		}
	})
	t.Logf("seed %d; logs are in %s", *seed, logs)
	g := &game{T: t, bed: newBed(t, logs), faults: faults, count: map[string]int{}}
	start := time.Now()
	if *soak > 0 {
		err = g.soak()
	} else {
		err = g.play()
	}
	t.Log(g.report(time.Since(start)))
	if err != nil {
		t.Fatalf("seed %d: %v", *seed, err)
	}
}

// list splits a flag at its commas.
func list(flag string) []string {
	return strings.FieldsFunc(flag, func(r rune) bool { return r == ',' })
}
