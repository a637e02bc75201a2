//go:build e2e

package neighbors

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// persistent is iptables-persistent: iptables-restore replaces the tables of iptables, at the start and at each reload.
type persistent struct{ program string }

// TestIptablesPersistent tries the iptables of Debian, which writes into nf_tables, and the older one.
func TestIptablesPersistent(t *testing.T) {
	for _, flavor := range []string{"nft", "legacy"} {
		t.Run(flavor, func(t *testing.T) {
			needs(t, "iptables-"+flavor+"-restore")
			testNeighbor(t, func() neighbor { return &persistent{flavor} })
		})
	}
	t.Run("explain", func(t *testing.T) {
		b := newBed(t)
		b.startVerdict(t)
		for _, f := range lab.Families() {
			(&persistent{"nft"}).restore(t, b, f, "*filter\n:FORWARD ACCEPT [0:0]\n:pods - [0:0]\n-A FORWARD -p tcp -j pods\n"+
				"-A pods -p tcp --dport 8080 -m conntrack --ctstate NEW -j DROP\nCOMMIT\n")
			b.expectExplained(t, f, "filter pods: ")
		}
	})
}

// expectExplained expects that "verdict explain" names the chain of others that can stop a connection, and with real packets
// the rule that does.
func (b *bed) expectExplained(t *testing.T, f lab.Family, rule string) {
	t.Helper()
	to := lab.AddressPort(f, "VIP1", servicePort)
	out := b.Node.Must(t, "", binary, "explain", lab.PodAddress(f, "d").String(), to.String())
	if !contains(out, "filter FORWARD (forward, priority 0) can stop it.") {
		t.Errorf("\"verdict explain\" does not name the chain:\n%s", out)
	}
	p := b.newSystem(t).start(t, "explain", binary, "explain", "--trace=1m", "--packets=1", lab.PodAddress(f, "d").String(), to.String())
	exited := func() bool {
		select {
		case <-p.Exited():
			return true
		default:
			return false
		}
	}
	eventually(t, "a packet is traced", p, func() bool {
		b.At(t, "d").Ask(lab.Question{Protocol: lab.TCP, To: to, Patience: 200 * time.Millisecond})
		return exited()
	})
	if out := p.Log(50); !contains(out, "dropped: "+map[lab.Family]string{lab.IPv4: "ip ", lab.IPv6: "ip6 "}[f]+rule) {
		t.Errorf("the trace does not name the rule %s:\n%s", rule, out)
	}
}

func (n *persistent) restore(t *testing.T, b *bed, f lab.Family, rules string) {
	t.Helper()
	name := map[lab.Family]string{lab.IPv4: "iptables-", lab.IPv6: "ip6tables-"}[f] + n.program + "-restore"
	b.Node.Must(t, rules, name)
}

func (n *persistent) start(t *testing.T, b *bed) {
	t.Helper()
	for _, f := range lab.Families() {
		n.restore(t, b, f, strings.ReplaceAll(`*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A FORWARD -s PODS -j ACCEPT
-A FORWARD -d PODS -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
COMMIT
`, "PODS", lab.MustText(f, "PODS")))
	}
}

func (n *persistent) reload(t *testing.T, b *bed) { n.start(t, b) }

func (n *persistent) stop(t *testing.T, b *bed) {
	t.Helper()
	for _, f := range lab.Families() {
		n.restore(t, b, f, "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n")
	}
}

func (*persistent) trace() string { return "" }

// drops: iptables-restore replaces each table in one step.
func (*persistent) drops() bool { return false }
