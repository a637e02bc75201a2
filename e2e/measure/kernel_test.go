//go:build !nokernel

package measure

import (
	"net/netip"
	"testing"
)

// TestCompare opens connections over all three paths. A second rule written by hand takes the place of the proxy's
// rules.
func TestCompare(t *testing.T) {
	path, err := NewPath("test")
	if err != nil {
		t.Fatal(err)
	}
	defer path.Close()
	frontend := netip.MustParseAddrPort("10.96.0.1:80")
	dialer, err := path.NewDialer()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := dialer.Dial(netip.AddrPortFrom(Server(3), ServerPort), 5); err != nil || len(c.Handshakes) != 5 || c.Rate() <= 0 {
		t.Fatalf("to an address of the server: %+v, %v", c, err)
	}
	if err := dialer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := path.Node.Load("no ruleset"); err == nil {
		t.Error("nft took nonsense")
	}
	if err := path.Node.Load("table ip x { chain p { type nat hook prerouting priority dstnat; ip daddr 10.96.0.1 tcp dport 80 dnat to 10.251.1.1:8080; }; }"); err != nil {
		t.Fatal(err)
	}
	steps := 0
	got, err := Compare(path, frontend, func(int) { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]PathResult{"proxy": got.Proxy, "one rule": got.OneRule, "no rule": got.NoRule} {
		if p.P50 <= 0 || p.P99 < p.P50 || p.Rate <= 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if steps != Rounds || got.ToRule <= 0 || len(got.Cells()) != len(ComparisonRows()) {
		t.Errorf("%d steps, ratio %v, %d cells", steps, got.ToRule, len(got.Cells()))
	}
}
