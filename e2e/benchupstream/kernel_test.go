//go:build !nokernel

package benchupstream

import (
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

func testNamespace(t *testing.T) *lab.Namespace {
	t.Helper()
	return &lab.Namespace{Namespace: netns.New(t)}
}

// TestNotifications expects an address to be found in an element and in a rule, at the end of its transaction.
func TestNotifications(t *testing.T) {
	ns := testNamespace(t)
	w, err := watchNotifications(ns)
	lab.Must(t, err)
	defer w.close()
	const table = "table ip t { map m { type inet_service : ipv4_addr . inet_service; }; chain c { }; }"
	tests := []struct{ name, script, addr string }{
		{"nothing of it", table, ""},
		{"element", "add element ip t m { 1 : 10.201.2.3 . 80 }", "10.201.2.3"},
		{"rule", "add rule ip t c meta l4proto tcp dnat to 10.201.2.4:80", "10.201.2.4"},
	}
	for _, tt := range tests {
		if tt.addr != "" {
			lab.Must(t, w.expect(netip.MustParseAddr(tt.addr)))
		}
		before := time.Now()
		if err := ns.Load(strings.Replace(tt.script, "chain c { }", "chain c { type nat hook prerouting priority 0; }", 1)); err != nil {
			t.Fatal(err)
		}
		found, err := w.arrived(30 * time.Second)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		for a, at := range found {
			if a.String() != tt.addr || at.Before(before) || at.After(time.Now()) {
				t.Errorf("%s: %s at %s", tt.name, a, at)
			}
		}
		if len(found) != len(strings.Fields(tt.addr)) {
			t.Errorf("%s: found %v", tt.name, found)
		}
	}
	if err := w.settle(50*time.Millisecond, 30*time.Second); err != nil {
		t.Errorf("nothing changes: %v", err)
	}
	_ = w.expect(netip.MustParseAddr("10.201.9.9"))
	if _, err := w.arrived(50 * time.Millisecond); err == nil {
		t.Error("an address arrived that is not in the kernel")
	}
}

func TestEntries(t *testing.T) {
	ns := testNamespace(t)
	w, err := watchEntries(ns)
	lab.Must(t, err)
	defer w.close()
	info, err := w.(*entries).info()
	lab.Must(t, err)
	if info.entries < 5 || info.size == 0 { // four chains and an end
		t.Errorf("an empty nat table: %+v", info)
	}
	if err := w.settle(30*time.Millisecond, 30*time.Second); err != nil {
		t.Errorf("nothing changes: %v", err)
	}
	lab.Must(t, w.expect(netip.MustParseAddr("10.0.0.1")))
	if err := w.expect(netip.MustParseAddr("10.0.0.2")); err == nil {
		t.Error("two changes at a time are accepted")
	}
	if _, err := w.arrived(30 * time.Millisecond); err == nil {
		t.Error("a change was reported, but there was none")
	}
}

func TestCountNFT(t *testing.T) {
	ns := testNamespace(t)
	script := `table ip a {
		comment "x"
		set s { type ipv4_addr; comment "y"; elements = { 10.0.0.1 }; }
		map m { type ipv4_addr : verdict; }
		chain base { type filter hook input priority 0; policy accept; comment "z"; ip saddr @s drop; ip daddr 10.0.0.2 accept; }
		chain other { tcp dport { 1, 2 } return; }
	}`
	lab.Must(t, ns.Load(script))
	got := measure.Figures{}
	countRules(t, ns, false, got)
	if want := (measure.Figures{"chains": 2, "rules": 3, "sets": 2}); !maps.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
