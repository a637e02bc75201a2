//go:build e2e

package neighbors

import (
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// libvirt is libvirtd with a network for virtual machines: a bridge, rules that let its machines out and nobody in, and
// masquerading.
type libvirt struct{ process *lab.Process }

const libvirtNetwork = `<network><name>default</name><forward mode="nat"/><bridge name="virbr0"/>
<ip address="192.168.122.1" netmask="255.255.255.0"/><ip family="ipv6" address="fd00:122::1" prefix="64"/></network>`

// TestLibvirt: the network stays while libvirtd restarts. At its start, libvirtd writes all its rules again.
func TestLibvirt(t *testing.T) {
	needs(t, "libvirtd", "virsh", "dnsmasq", "iptables", "dbus-daemon")
	testNeighbor(t, func() neighbor { return &libvirt{} })
}

func (*libvirt) trace() string { return "libvirt" }

func (n *libvirt) start(t *testing.T, b *bed) {
	t.Helper()
	s := b.newSystem(t)
	if !s.succeeds("test", "-S", "/run/dbus/system_bus_socket") {
		s.bus(t)
	}
	n.process = s.start(t, "libvirtd", "libvirtd")
	virsh := func(args ...string) []string {
		return append([]string{"virsh", "--connect=network:///system"}, args...)
	}
	eventually(t, "libvirtd answers", n.process, func() bool { return s.succeeds(virsh("uri")...) })
	if !s.succeeds(virsh("net-info", "default")...) {
		s.write(t, "/run/default.xml", libvirtNetwork)
		s.run(t, virsh("net-define", "/run/default.xml")...)
	}
	if !contains(s.run(t, virsh("net-list")...), "default") {
		s.run(t, virsh("net-start", "default")...)
	}
}

func (n *libvirt) reload(t *testing.T, b *bed) {
	t.Helper()
	n.stop(t, b)
	n.start(t, b)
}

func (n *libvirt) stop(t *testing.T, _ *bed) {
	t.Helper()
	stop(t, n.process)
}

func (*libvirt) drops() bool { return false }
