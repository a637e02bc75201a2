//go:build !nokernel

package nft

import (
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// namespace is a network namespace together with what these tests do there.
type namespace struct{ *netns.Namespace }

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	return &namespace{netns.New(t)}
}

// nft runs the nft program (Debian package nftables).
func (n *namespace) nft(t testing.TB, args ...string) string {
	t.Helper()
	return n.Must(t, "", "nft", args...)
}

// load has nft read a script.
func (n *namespace) load(t testing.TB, script string) {
	t.Helper()
	n.Must(t, script, "nft", "-f", "-")
}

// list is the listing of both tables, and of others if there are any. While the kernel makes the hash table of a large
// set larger or smaller, it leaves out elements and repeats others; then two listings differ.
func (n *namespace) list(t testing.TB) string {
	t.Helper()
	for before := ""; ; time.Sleep(20 * time.Millisecond) {
		now := n.nft(t, "list", "ruleset")
		if now == before || len(now) < 1<<16 {
			return now
		}
		before = now
	}
}

// engine opens an engine in the namespace.
func (n *namespace) engine(t testing.TB) *Engine {
	t.Helper()
	e, err := Open(Options{NetNS: n.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}
