//go:build e2e

package neighbors

import (
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// firewalld is the firewall of Fedora and others, with its backend nftables. It rejects what it does not know in forward,
// and checks the way back to each source (IPv6_rpfilter).
type firewalld struct {
	process *lab.Process
	open    string // ports of the node that are not those of Services, as elements of the zone
}

// TestFirewalld: the interfaces of pods are in the zone trusted, as every network plugin needs it. All else has the defaults.
func TestFirewalld(t *testing.T) {
	needs(t, "firewalld", "firewall-cmd", "dbus-daemon")
	testNeighbor(t, func() neighbor { return &firewalld{} })
}

func (n *firewalld) start(t *testing.T, b *bed) {
	t.Helper()
	if n.process == nil {
		s := b.newSystem(t)
		s.bus(t)
		s.write(t, "/etc/firewalld/zones/public.xml", `<zone><short>Public</short>`+n.open+`</zone>`)
		s.write(t, "/etc/firewalld/zones/trusted.xml", `<zone target="ACCEPT"><short>Trusted</short>
<source address="`+lab.MustText(lab.IPv4, "PODS")+`"/><source address="`+lab.MustText(lab.IPv6, "PODS")+`"/>
</zone>`)
	}
	n.process = b.system.start(t, "firewalld", "firewalld", "--nofork", "--nopid")
	eventually(t, "firewalld runs", n.process, func() bool { return b.system.succeeds("firewall-cmd", "--state") })
}

func (n *firewalld) reload(t *testing.T, b *bed) {
	t.Helper()
	b.system.run(t, "firewall-cmd", "--reload")
}

func (n *firewalld) stop(t *testing.T, _ *bed) {
	t.Helper()
	stop(t, n.process)
}

func (*firewalld) trace() string { return "firewalld" }

// drops: firewalld drops all packets but those of established connections while it reloads, in a table of its own
// (firewalld_policy_drop). From version 2.1, ReloadPolicy in firewalld.conf turns that off.
func (*firewalld) drops() bool { return true }
