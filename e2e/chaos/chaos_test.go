//go:build e2e

package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/verdict-proxy/verdict/e2e/chaos/inject"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == inject.BecomeWord {
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
	lab.Must(t, err)
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
