//go:build e2e

package neighbors

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// policies are rules as plugins for network policies write them: they mark packets and connections before and after
// Verdict's chains, and forbid one client to reach one pod. They count what they see.
const policies = `
add table inet netpol
add counter inet netpol marked
add counter inet netpol connmarked
add chain inet netpol first { type filter hook prerouting priority -300; }
add chain inet netpol early { type filter hook prerouting priority -150; }
add chain inet netpol forward { type filter hook forward priority -10; }
add chain inet netpol last { type filter hook postrouting priority 300; }
add rule inet netpol first iifname "inner" meta mark set meta mark | 0x40000
add rule inet netpol early iifname "inner" ct mark set 0x77
add rule inet netpol forward ip saddr %[1]s ip daddr %[2]s tcp dport 8080 drop
add rule inet netpol forward ip6 saddr %[3]s ip6 daddr %[4]s tcp dport 8080 drop
add rule inet netpol last meta mark and 0x40000 == 0x40000 tcp dport 8080 counter name marked
add rule inet netpol last ct mark 0x77 tcp dport 8080 counter name connmarked
`

// TestNetworkPolicies: policies see the addresses of pods on both ends, Verdict changes no mark of packets or connections,
// and all else is served.
func TestNetworkPolicies(t *testing.T) {
	needs(t, "nft")
	for _, first := range []string{"policies", "Verdict"} {
		t.Run(first+" first", func(t *testing.T) {
			b := newBed(t)
			// Pod d may not connect to pod b. A Service of pod b alone is "hairpin".
			write := func() {
				b.Node.Must(t, fmt.Sprintf(policies, lab.PodAddress(lab.IPv4, "d"), lab.PodAddress(lab.IPv4, "b"),
					lab.PodAddress(lab.IPv6, "d"), lab.PodAddress(lab.IPv6, "b")), "nft", "-f", "-")
			}
			if first == "policies" {
				write()
				b.startVerdict(t)
			} else {
				b.startVerdict(t)
				write()
			}
			for _, f := range lab.Families() {
				q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f, "VIP4", servicePort), Patience: 10 * time.Second}
				if r := b.At(t, "c").Ask(q); r.Outcome != lab.Answered || r.Answer.Source != r.Client {
					t.Errorf("%s from c, which may: %s, want an answer to c's own address", q, r)
				}
				q.Patience = 2 * time.Second
				if r := b.At(t, "d").Ask(q); r.Outcome != lab.Dropped {
					t.Errorf("%s from d, which the policy forbids: %s, want dropped", q, r)
				}
			}
			for _, name := range []string{"marked", "connmarked"} {
				if n := b.counter(t, name); n < len(lab.Families()) {
					t.Errorf("%d packets to pods left the node %s, want one for each connection at least", n, name)
				}
			}
		})
	}
}

var packets = regexp.MustCompile(`packets (\d+)`)

func (b *bed) counter(t *testing.T, name string) int {
	t.Helper()
	out := b.Node.Must(t, "", "nft", "list", "counter", "inet", "netpol", name)
	m := packets.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no counter in %q", out)
	}
	n, err := strconv.Atoi(m[1])
	lab.Must(t, err)
	return n
}
