//go:build e2e

package neighbors

import (
	"strings"
	"testing"

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
`, "PODS", text(t, f, "PODS")))
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
