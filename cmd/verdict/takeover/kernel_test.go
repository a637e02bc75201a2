//go:build !nokernel

package takeover

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Enter(m.Run)) }

// leftovers is what kube-proxy, the kubelet and a network plugin leave in both families.
func leftovers(services int) string {
	var b strings.Builder
	for _, family := range []string{"ip", "ip6"} {
		fmt.Fprintf(&b, "table %s kube-proxy { chain nat { type nat hook prerouting priority -100; }; }\n", family)
		fmt.Fprintf(&b, `table %s nat {
	chain KUBE-MARK-MASQ { meta mark set 0x4000; }
	chain CNI-DN { jump KUBE-MARK-MASQ; }
	chain KUBE-KUBELET-CANARY { }
`, family)
		for i := range services {
			fmt.Fprintf(&b, "chain KUBE-SEP-%d { jump KUBE-MARK-MASQ; }\n chain KUBE-SVC-%d { jump KUBE-SEP-%d; }\n", i, i, i)
		}
		b.WriteString("chain KUBE-SERVICES {\n")
		for i := range services {
			fmt.Fprintf(&b, "jump KUBE-SVC-%d\n", i)
		}
		b.WriteString(`}
	chain PREROUTING { type nat hook prerouting priority -100; counter jump KUBE-SERVICES; tcp dport 81 accept; }
}
`)
		fmt.Fprintf(&b, "table %s filter { chain KUBE-FIREWALL { drop; }; chain KUBE-FORWARD { accept; };\n"+
			"chain INPUT { type filter hook input priority 0; jump KUBE-FIREWALL; jump KUBE-FORWARD; }; }\n", family)
		fmt.Fprintf(&b, "table %s other { chain KUBE-SERVICES { }; }\n", family) // not a table of iptables
	}
	return b.String()
}

// TestRemove: what is kube-proxy's goes, also when it takes several transactions, and what is not stays.
func TestRemove(t *testing.T) {
	ns := netns.New(t)
	ns.Must(t, leftovers(700), "nft", "-f", "-")
	addSet := func(name, kind string) {
		ns.MustDo(t, func() error { return netlink.IpsetCreate(name, kind, netlink.IpsetCreateOptions{}) })
	}
	addSet("KUBE-CLUSTER-IP", "hash:ip")
	addSet("KUBE-6-LOAD-BALANCER-SOURCE-CID", "hash:ip") // as the kernel and kube-proxy truncate it
	addSet("mine", "hash:ip")
	var names, kept []string
	ns.MustDo(t, func() error {
		f, err := Find()
		if err != nil {
			return err
		}
		names, kept = f.Names(), f.Kept()
		return f.Remove()
	})
	// Each family has KUBE-SERVICES, KUBE-FORWARD, and two chains for each Service.
	if got := strings.Join(names, ", "); !strings.Contains(got, "2804 chains of iptables-nft") ||
		!strings.Contains(got, "table ip kube-proxy") || !strings.Contains(got, "table ip6 kube-proxy") || !strings.Contains(got, "2 ipsets") || len(kept) != 2 {
		t.Errorf("found %s; kept %q", got, kept)
	}
	want := ""
	for _, family := range []string{"ip", "ip6"} {
		want += fmt.Sprintf("table %[1]s nat KUBE-MARK-MASQ CNI-DN KUBE-KUBELET-CANARY PREROUTING 1 "+
			"table %[1]s filter KUBE-FIREWALL INPUT 1 table %[1]s other KUBE-SERVICES ", family)
	}
	if got := summary(ns.Must(t, "", "nft", "list", "ruleset")); got != want {
		t.Errorf("left is\n%s\nwant\n%s", got, want)
	}
	ns.MustDo(t, func() error {
		f, err := Find()
		if !f.Empty() {
			t.Errorf("found again: %q", f.Names())
		}
		if left, err := IPSets(); err != nil || !slices.Equal(left, []string{"mine"}) {
			t.Errorf("left are the ipsets %q, %v; want only that of other software", left, err)
		}
		return err
	})
}

// TestForeignJumps: rules of other software lead to chains of kube-proxy that lead to others. These chains stay, and are
// empty; the others go.
func TestForeignJumps(t *testing.T) {
	ns := netns.New(t)
	ns.Must(t, leftovers(3)+`table ip nat { chain DOCKER { jump KUBE-SERVICES; goto KUBE-SVC-1; }; }
`, "nft", "-f", "-")
	remove := func() (names, kept []string) {
		ns.MustDo(t, func() error {
			f, err := Find()
			if err != nil {
				return err
			}
			names, kept = f.Names(), f.Kept()
			return f.Remove()
		})
		return names, kept
	}
	if _, kept := remove(); len(kept) != 4 {
		t.Errorf("kept %q", kept)
	}
	want := "table ip nat KUBE-MARK-MASQ CNI-DN KUBE-KUBELET-CANARY KUBE-SVC-1 KUBE-SERVICES PREROUTING 1 DOCKER "
	got := summary(ns.Must(t, "", "nft", "list", "ruleset"))
	if !strings.Contains(got, want) || strings.Contains(got, "KUBE-SEP") {
		t.Errorf("left is\n%s\nwant\n%s", got, want)
	}
	if rules := ns.Must(t, "", "nft", "list", "chain", "ip", "nat", "KUBE-SERVICES"); strings.Contains(rules, "jump") {
		t.Errorf("connections still find rules of kube-proxy:\n%s", rules)
	}
	if rules := ns.Must(t, "", "nft", "list", "chain", "ip", "nat", "KUBE-MARK-MASQ"); !strings.Contains(rules, "0x00004000") {
		t.Errorf("the network plugin has lost its mark:\n%s", rules)
	}
	if names, kept := remove(); len(names) > 0 || len(kept) != 4 {
		t.Errorf("found again: %q, kept %q", names, kept)
	}
}

// summary names tables and chains in their order, and counts the rules of chains with hooks.
func summary(ruleset string) string {
	var b strings.Builder
	hook, rules := false, 0
	for line := range strings.Lines(ruleset) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "table":
			fmt.Fprintf(&b, "table %s %s ", words[1], words[2])
		case words[0] == "chain":
			fmt.Fprintf(&b, "%s ", words[1])
		case words[0] == "type":
			hook, rules = true, 0
		case words[0] == "}" && hook:
			fmt.Fprintf(&b, "%d ", rules)
			hook = false
		case hook:
			rules++
		}
	}
	return b.String()
}

// TestDevice: the addresses of the device of the mode ipvs are told from those of the node, and go with it.
func TestDevice(t *testing.T) {
	ns := netns.New(t)
	ns.MustDo(t, func() error {
		places, err := Places()
		if len(places) != 0 {
			t.Errorf("places without the device: %v", places)
		}
		return err
	})
	for _, command := range []string{
		"link add node type bridge", "addr add 192.0.2.10/24 dev node", "addr add 2001:db8::10/64 dev node nodad",
		"link add kube-ipvs0 type bridge", "addr add 10.96.0.1/32 dev kube-ipvs0", "addr add fd00:10:96::1/128 dev kube-ipvs0 nodad",
	} {
		ns.Must(t, "", "ip", strings.Fields(command)...)
	}
	ns.MustDo(t, func() error {
		places, err := Places()
		if err != nil {
			return err
		}
		for text, of := range map[string]bool{"192.0.2.10": false, "2001:db8::10": false, "10.96.0.1": true, "fd00:10:96::1": true} {
			if route, known := places[netip.MustParseAddr(text)]; !known || route != of {
				t.Errorf("%s: known %v, of the device %v; want %v", text, known, route, of)
			}
		}
		f, err := Find()
		if err != nil || !f.Device {
			t.Errorf("found %q, %v", f.Names(), err)
		}
		if err := RemoveDevice(); err != nil {
			return err
		}
		f, err = Find()
		if !f.Empty() {
			t.Errorf("left are %q", f.Names())
		}
		return err
	})
}
