//go:build !nokernel

package nft

import (
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
)

// TestLoopbackGuard writes, replaces, reads and deletes the table, also when there is nothing to replace or to delete.
func TestLoopbackGuard(t *testing.T) {
	n := newNamespace(t)
	o := kernel.Options{NetNS: n.Fd()}
	expect := func(want kernel.LoopbackGuard) {
		t.Helper()
		if got, err := kernel.ReadLoopbackGuard(o); err != nil || got != want {
			t.Errorf("%+v, error %v; want %+v", got, err, want)
		}
	}
	expect(kernel.LoopbackGuard{})
	if err := kernel.UnguardLoopback(o); err != nil {
		t.Fatal(err)
	}
	for _, record := range []string{"was 0", "was 1"} {
		if err := kernel.GuardLoopback(o, record); err != nil {
			t.Fatal(err)
		}
		expect(kernel.LoopbackGuard{Exists: true, Record: record, Intact: true})
	}
	const want = `iifname != "lo" ip daddr 127.0.0.0/8 drop`
	if got := n.nft(t, "list", "ruleset"); strings.Count(got, want) != 1 || !strings.Contains(got, "priority dstnat - 10") {
		t.Errorf("the guard is not as wanted:\n%s", got)
	}
	e := n.engine(t)
	e.SetGlobals(contents.Globals{NodePortAddresses: addrs("127.0.0.1")})
	mustApply(t, e)
	if err := kernel.UnguardLoopback(o); err != nil {
		t.Fatal(err)
	}
	expect(kernel.LoopbackGuard{Program: true})
}
