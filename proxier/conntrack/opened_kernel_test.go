//go:build !nokernel

package conntrack

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestOpened: each new translated flow counts once, at its endpoint. Others do not count.
func TestOpened(t *testing.T) {
	w := lab.New(t)
	w.Node.Must(t, "", "nft", "add table ip t; add chain ip t c { type nat hook prerouting priority -100; }; "+
		"add rule ip t c ip daddr 10.96.0.11 tcp dport 80 dnat to 10.0.1.1:8080")
	opened, err := WatchOpened(Options{NetNS: w.Node.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	vip := netip.MustParseAddrPort("10.96.0.11:80")
	const connections = 20
	for range connections {
		w.At(t, "x").Once(t, lab.Question{Protocol: lab.TCP, To: vip, Patience: 30 * time.Second})
		w.At(t, "x").Once(t, lab.Question{Protocol: lab.TCP, To: netip.MustParseAddrPort("10.0.1.2:8080"), Patience: 30 * time.Second})
	}
	got := uint64(0)
	for late := time.Now().Add(lab.Limit); got < connections && time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
		count, lost, err := opened.Take()
		if err != nil || lost {
			t.Fatalf("lost %t, %v", lost, err)
		}
		for way, n := range count {
			if way.Dst != vip || way.Reply != netip.MustParseAddrPort("10.0.1.1:8080") {
				t.Errorf("%d flows on %+v", n, way)
			}
			got += n
		}
	}
	if got != connections {
		t.Errorf("%d flows, want %d", got, connections)
	}
}
