//go:build !nokernel

package measure

import (
	"net/netip"
	"testing"
)

// TestCompare opens connections over all three paths. A second rule written by hand takes the place of the proxy's
// rules.
func TestCompare(t *testing.T) {
	path := NewPath(t)
	frontend := netip.MustParseAddrPort("10.96.0.1:80")
	if c, err := path.Dial(netip.AddrPortFrom(Server(3), ServerPort), 5); err != nil || len(c.Handshakes) != 5 || c.Rate() <= 0 {
		t.Fatalf("to an address of the server: %+v, %v", c, err)
	}
	if err := path.Node.Load("no ruleset"); err == nil {
		t.Error("nft took nonsense")
	}
	if err := path.Node.Load("table ip x { chain p { type nat hook prerouting priority dstnat; ip daddr 10.96.0.1 tcp dport 80 dnat to 10.251.1.1:8080; }; }"); err != nil {
		t.Fatal(err)
	}
	f := Figures{}
	Compare(t, path, frontend)(f)
	for _, name := range []string{"proxy-", "one-rule-", "no-rule-"} {
		if f[name+"p50-ns"] <= 0 || f[name+"p99-ns"] < f[name+"p50-ns"] || f[name+"connections/sec"] <= 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if f["proxy-to-one-rule"] <= 0 || f["proxy-to-no-rule"] <= 0 {
		t.Errorf("ratios: %+v", f)
	}
}
