//go:build e2e

package neighbors

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// The address of a DNS cache on each node, as node-local DNS caches use it.
const linkLocal = "169.254.20.10"

// TestDNSCache: a DNS cache on the node listens on the cluster IP of the cluster's DNS, on a device of its own, with rules
// that keep connection tracking away (NOTRACK). Pods and the node ask the cache, and not the Service. When the cache is
// gone with its rules, they ask the Service again.
func TestDNSCache(t *testing.T) {
	needs(t, "dnsmasq", "nft")
	b := newBed(t)
	b.startVerdict(t)
	s := b.newSystem(t)
	vip := lab.MustText(lab.IPv4, "VIP1")
	b.Node.Must(t, "", "ip", "link", "add", "nodelocaldns", "type", "bridge")
	for _, a := range []string{linkLocal, vip} {
		b.Node.Must(t, "", "ip", "address", "add", a+"/32", "dev", "nodelocaldns")
	}
	b.Node.Must(t, fmt.Sprintf(`add table ip nodelocaldns
add chain ip nodelocaldns in { type filter hook prerouting priority raw; }
add chain ip nodelocaldns out { type filter hook output priority raw; }
add rule ip nodelocaldns in ip daddr { %[1]s, %[2]s } udp dport %[3]d notrack
add rule ip nodelocaldns out ip daddr { %[1]s, %[2]s } udp dport %[3]d notrack
add rule ip nodelocaldns out ip saddr { %[1]s, %[2]s } udp sport %[3]d notrack
`, linkLocal, vip, servicePort), "nft", "-f", "-")
	p := s.start(t, "dnsmasq", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--bind-interfaces",
		fmt.Sprint("--port=", servicePort), "--listen-address="+linkLocal, "--listen-address="+vip, "--address=/#/192.0.2.53", "--pid-file=")
	for _, place := range []string{"a", lab.Node} {
		for _, server := range []string{linkLocal, vip} {
			eventually(t, server+" answers "+place, p, func() bool { return b.resolves(t, place, server) })
		}
	}
	b.expectTrace(t, "DNS cache on the node")
	if flows, err := b.Node.Flows(lab.IPv4); err != nil {
		t.Fatal(err)
	} else {
		for _, f := range flows {
			if f.Protocol == lab.UDP && f.To.Addr().String() == vip {
				t.Errorf("a question to the cache is tracked: %+v", f)
			}
		}
	}
	stop(t, p)
	b.Node.Must(t, "", "nft", "delete", "table", "ip", "nodelocaldns")
	b.Node.Must(t, "", "ip", "link", "delete", "nodelocaldns")
	q := lab.Question{Protocol: lab.UDP, To: lab.AddressPort(lab.IPv4, "VIP1", servicePort), Patience: 10 * time.Second}
	for _, place := range []string{"a", lab.Node} {
		if r := b.At(t, place).Ask(q); r.Outcome != lab.Answered {
			t.Errorf("after the end of the cache: %s from %s: %s, want an answer of a pod", q, place, r)
		}
	}
}

// resolves asks a DNS server for a name.
func (b *bed) resolves(t *testing.T, place, server string) bool {
	t.Helper()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return b.At(t, place).DialContext(ctx, "udp", net.JoinHostPort(server, strconv.Itoa(servicePort)))
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answers, err := r.LookupHost(ctx, "example.test.")
	return err == nil && slices.Contains(answers, "192.0.2.53")
}
