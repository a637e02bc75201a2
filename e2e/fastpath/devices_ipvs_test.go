//go:build ipvs

package fastpath

import (
	"fmt"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// load loads a kernel module. A kernel without it fails the test: nothing would be shown.
func (b *bed) load(module string) {
	b.t.Helper()
	b.World.Node.Must(b.t, "", "sh", "-c", "$(cat /proc/sys/kernel/modprobe) "+module)
}

// TestKinds: connections take the fast path through devices on top of others, and their packets leave by these.
func TestKinds(t *testing.T) {
	b := newBed(t, "")
	for _, test := range []struct {
		kind, module string
		families     []lab.Family
		link         string // the arguments of "ip link add over", with the link below, and the addresses of this end and the other
	}{
		{"VLAN", "8021q", lab.Families(), "link LINK name over type vlan id 5"},
		{"VXLAN", "vxlan", lab.Families(), "over type vxlan id 5 dstport 4789 local OWN remote OTHER dev LINK"},
		{"IPIP", "ipip", []lab.Family{lab.IPv4}, "over type ipip local OWN remote OTHER"},
		{"IPv6 in IPv6", "ip6_tunnel", []lab.Family{lab.IPv6}, "over type ip6tnl mode ip6ip6 local OWN remote OTHER"},
	} {
		t.Run(test.kind, func(t *testing.T) {
			b.load(test.module)
			remote := b.At(t, lab.Remote)
			f := test.families[0]
			own, other := lab.MustText(f, "NODE_INNER"), lab.MustText(f, "REMOTE")
			b.World.Node.Must(t, "", "sh", "-c", "ip link add "+strings.NewReplacer("LINK", lab.InnerLink, "OWN", own, "OTHER", other).Replace(test.link))
			remote.Must(t, "", "sh", "-c", "ip link add "+strings.NewReplacer("LINK", "eth0", "OWN", other, "OTHER", own).Replace(test.link))
			for i, n := range []*lab.Namespace{b.World.Node, remote} {
				n.Must(t, "", "ip", "link", "set", "over", "up")
				for _, f := range test.families {
					net := map[lab.Family]string{lab.IPv4: "172.31.0.%d", lab.IPv6: "fd00:31::%d"}[f]
					bits := map[lab.Family]string{lab.IPv4: "/24", lab.IPv6: "/64"}[f]
					n.Must(t, "", "ip", "address", "add", fmt.Sprintf(net, i+1)+bits, "dev", "over", "nodad")
					to, table := "REMOTE_PODS", mainTable
					if i == 1 {
						to, table = "EVERYWHERE", viaNode
					}
					n.Must(t, "", "ip", "route", "replace", lab.MustText(f, to), "via", fmt.Sprintf(net, 2-i), "dev", "over", "table", fmt.Sprint(table))
				}
			}
			b.untilDevices("over")
			for _, w := range ways() {
				for _, f := range test.families {
					if w.family == f {
						b.passesBy(t, w, "over")
					}
				}
			}
			b.World.Node.Must(t, "", "ip", "link", "delete", "over") // and its routes
			remote.Must(t, "", "sh", "-c", "! ip link show over || ip link delete over")
		})
	}
}

// passesBy has a connection take the fast path by a device.
func (b *bed) passesBy(t *testing.T, w way, device string) {
	t.Helper()
	flow := b.open(t, w)
	b.takes(t, w, func() { exchange(t, flow, 1) })
	before := b.sent(device)
	exchange(t, flow, 20)
	if n := b.sent(device) - before; n < 20 {
		t.Errorf("%s: the node sends %d packets by %s, want 20", w, n, device)
	}
	if line := b.track(w.family, w.protocol, w.to()); !offloaded(line) {
		t.Errorf("%s: the connection is %q", w, line)
	}
	flow.Close()
	lab.Must(t, b.World.Node.ForgetFlows())
}

// TestBridge: a bridge, with a client behind it, and an endpoint; first a plain one, then one whose packets pass the rules of the node
// (br_netfilter).
func TestBridge(t *testing.T) {
	b := newBed(t, "")
	b.untilDevices("br-pods")
	for _, filtered := range []bool{false, true} {
		if filtered {
			b.load("br_netfilter")
			lab.Must(t, b.World.Node.Sysctl("net.bridge.bridge-nf-call-iptables=1", "net.bridge.bridge-nf-call-ip6tables=1"))
		}
		b.web("", "c")
		b.untilAt(t, "c")
		for _, f := range lab.Families() {
			for _, p := range []lab.Protocol{lab.TCP, lab.UDP} {
				b.passesBy(t, way{f, p, "b", "VIP1", servicePort}, lab.InnerLink)
			}
		}
		b.web("", "b")
		b.untilAt(t, "b")
		for _, w := range ways() {
			b.passesBy(t, w, "br-pods")
		}
	}
	for _, text := range b.devices() {
		if strings.Contains(text, "veth-b") {
			t.Errorf("the port of a bridge is a device of the fast path: %s", text)
		}
	}
}

// TestBridgeReset: where the packets of a bridge pass the rules, connection tracking sees those of a client behind it before the fast path
// does. A reset of such a client does not take the connection from the fast path, but it reaches the endpoint.
func TestBridgeReset(t *testing.T) {
	b := newBed(t, "")
	b.load("br_netfilter")
	lab.Must(t, b.World.Node.Sysctl("net.bridge.bridge-nf-call-iptables=1"))
	b.untilDevices("br-pods")
	b.At(t, "c").Must(t, "table inet resets { counter n { }; chain p { type filter hook prerouting priority -300; tcp dport 8080 tcp flags rst counter name n; }; }", "nft", "-f", "-")
	w := way{lab.IPv4, lab.TCP, "b", "VIP1", servicePort}
	conn := b.dial(t, w)
	lab.Must(t, conn.SetLinger(0), conn.Close())
	lab.Eventually(t, "the reset reaches the endpoint", func() error {
		text, err := b.At(t, "c").Command("nft", "list", "counter", "inet", "resets", "n")
		if err == nil && strings.Contains(text, "packets 0 ") {
			err = fmt.Errorf("the counter is %s; the connection is %q", text, b.track(w.family, w.protocol, w.to(), port(conn)))
		}
		return err
	})
	t.Logf("the connection is %q", b.track(w.family, w.protocol, w.to(), port(conn)))
}
