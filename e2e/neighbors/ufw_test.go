//go:build e2e

package neighbors

import (
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// ufw is the firewall of Ubuntu, which uses iptables. As shipped it drops what the node would forward.
type ufw struct{ configured bool }

// TestUfw: routed traffic of pods and to pods is allowed ("ufw route allow"), as every network plugin needs it.
func TestUfw(t *testing.T) {
	needs(t, "ufw", "iptables")
	testNeighbor(t, func() neighbor { return &ufw{} })
}

func (n *ufw) start(t *testing.T, b *bed) {
	t.Helper()
	s := b.newSystem(t)
	if !n.configured {
		n.configured = true
		for _, f := range lab.Families() {
			pods := lab.MustText(f, "PODS")
			s.run(t, "ufw", "route", "allow", "from", pods)
			s.run(t, "ufw", "route", "allow", "to", pods)
			s.run(t, "ufw", "allow", "from", pods)
		}
	}
	s.run(t, "ufw", "--force", "enable")
}

func (n *ufw) reload(t *testing.T, b *bed) {
	t.Helper()
	b.system.run(t, "ufw", "reload")
}

func (n *ufw) stop(t *testing.T, b *bed) {
	t.Helper()
	b.system.run(t, "ufw", "disable")
}

func (*ufw) trace() string { return "ufw" }

// drops: "ufw reload" sets the policies to drop before it writes its chains again, one iptables-restore after the other.
func (*ufw) drops() bool { return true }
