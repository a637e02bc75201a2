//go:build e2e

package chaos

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/kernel"
)

// fastPathAfter is how many packets connections pass before they take the fast path. Each connection that stays open soon has more.
const fastPathAfter = 6

// slowPath is why this kernel cannot have the fast path; "": it can.
var slowPath = sync.OnceValue(func() string { return kernel.WhySlow(kernel.Options{}) })

// fastPath sees which connections take the fast path.
type fastPath struct {
	node   *lab.Namespace
	rounds int   // that had it
	taken  []int // connections on it, at the beginning and the end of these rounds
}

// newFastPath returns nil, and says why, if there is no fast path in this run.
func newFastPath(t *testing.T, node *lab.Namespace) *fastPath {
	t.Helper()
	why := slowPath()
	switch {
	case *others != "":
		why = "earlier versions of the program do not have it"
	case *soak > 0:
		why = "the daemon of a soak does not restart"
	}
	if why != "" {
		t.Logf("no round has the fast path: %s", why)
		return nil
	}
	// The kernel counts packets of connections that begin while this setting is on. Those of before the first such round shall count as well.
	lab.Must(t, node.Sysctl("net.netfilter.nf_conntrack_acct=1"))
	return &fastPath{node: node}
}

// in reports whether a round has the fast path: one in three.
func (f *fastPath) in(round int) bool { return f != nil && (*seed+uint64(round))%3 == 0 }

// switchFastPath restarts the daemon with or without the fast path, as the round has it, under the clients.
func (g *game) switchFastPath(round int) error {
	on := g.fast.in(round)
	if on != g.daemon.fastPath {
		if err := g.daemon.stop(); err != nil {
			return err
		}
		g.daemon.fastPath = on
		if err := g.daemon.start(); err != nil {
			return err
		}
	}
	if !on {
		return nil
	}
	g.fast.rounds++
	return g.fast.untilTaken()
}

// untilTaken waits until open connections of both families, with TCP and with UDP, are on the fast path.
func (f *fastPath) untilTaken() error {
	for late := time.Now().Add(lab.Limit); ; time.Sleep(slower(50 * time.Millisecond)) {
		text, err := f.node.Command("cat", "/proc/net/nf_conntrack")
		if err != nil {
			return err
		}
		kinds, n := map[string]int{}, 0
		for line := range strings.Lines(text) {
			if words := strings.Fields(line); strings.Contains(line, "[OFFLOAD]") {
				kinds[words[0]+" "+words[2]]++
				n++
			}
		}
		switch {
		case len(kinds) == 4:
			f.taken = append(f.taken, n)
			return nil
		case time.Now().After(late):
			return fmt.Errorf("after %s, not all families and protocols have connections on the fast path: %v", lab.Limit, kinds)
		}
	}
}
