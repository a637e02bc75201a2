//go:build !nokernel

package nft

import (
	"strings"
	"testing"
)

// TestLoopbackGuard writes, replaces, reads and deletes the table, also when there is nothing to replace or to delete.
func TestLoopbackGuard(t *testing.T) {
	n := newNamespace(t)
	o := Options{NetNS: n.Fd()}
	expect := func(want LoopbackGuard) {
		t.Helper()
		if got, err := ReadLoopbackGuard(o); err != nil || got != want {
			t.Errorf("%+v, error %v; want %+v", got, err, want)
		}
	}
	expect(LoopbackGuard{})
	if err := UnguardLoopback(o); err != nil {
		t.Fatal(err)
	}
	for _, record := range []string{"was 0", "was 1"} {
		if err := GuardLoopback(o, record); err != nil {
			t.Fatal(err)
		}
		expect(LoopbackGuard{Exists: true, Record: record, Intact: true})
	}
	const want = `iifname != "lo" ip daddr 127.0.0.0/8 drop`
	if got := n.nft(t, "list", "ruleset"); strings.Count(got, want) != 1 || !strings.Contains(got, "priority dstnat - 10") {
		t.Errorf("the guard is not as wanted:\n%s", got)
	}
	e := n.engine(t)
	e.SetGlobals(Globals{NodePortAddresses: addrs("127.0.0.1")})
	mustApply(t, e)
	if err := UnguardLoopback(o); err != nil {
		t.Fatal(err)
	}
	expect(LoopbackGuard{Program: true})
}
