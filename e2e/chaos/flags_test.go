//go:build e2e

package chaos

import (
	"flag"
	"os"
	"strings"
	"time"
)

// The flags of the test.
var (
	seed      = flag.Uint64("seed", 0, "the `NUMBER` that decides the faults and the objects; 0: a new one")
	rounds    = flag.Int("rounds", 200, "the `NUMBER` of rounds")
	first     = flag.Int("first", 1, "the `NUMBER` of the first round, to repeat the end of a run")
	binaries  = flag.String("binaries", "", "`DIR` with etcd and kube-apiserver (e2e/controlplane/build.sh)")
	program   = flag.String("verdict", os.Getenv("VERDICT_BINARY"), "the `FILE` with the program under test")
	others    = flag.String("other", "", "the `FILES` with other versions of the program, as absolute paths separated by commas, which take turns with it as one more of the faults")
	only      = flag.String("only", "", "draw only faults whose names contain one of these `WORDS`, separated by commas")
	manifests = flag.Bool("manifests", false, "Verdict follows manifests instead of an API server")
	slow      = flag.Int("slow", 1, "clients pause, and waits last, a `NUMBER` of times as long, and fewer Services change: the processor is emulated")
	soak      = flag.Duration("soak", 0, "instead of rounds, watch Verdict for a `TIME`: memory, descriptors and goroutines must stay flat")
)

// slower is a time on this processor.
func slower(t time.Duration) time.Duration { return time.Duration(*slow) * t }

// splitFlag splits a flag at its commas.
func splitFlag(flag string) []string {
	return strings.FieldsFunc(flag, func(r rune) bool { return r == ',' })
}
