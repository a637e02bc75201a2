//go:build ipvs

package fastpath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
		{"IPv6 in IPv6", "ip6_tunnel", []lab.Family{lab.IPv6}, "over type ip6tnl mode ip6ip6 encaplimit none local OWN remote OTHER"},
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
						b.passes(t, w, "arrive by over", func() int { return packets(t, remote, "over", "rx") })
					}
				}
			}
			b.World.Node.Must(t, "", "ip", "link", "delete", "over") // and its routes
			remote.Must(t, "", "sh", "-c", "! ip link show over || ip link delete over")
		})
	}
}

// passesBy has a connection take the fast path by a device of the node.
func (b *bed) passesBy(t *testing.T, w way, device string) {
	t.Helper()
	b.passes(t, w, "leave by "+device, func() int { return b.sent(device) })
}

// passes has a connection take the fast path by a device where its packets are counted. A newer kernel does not count them at a device
// that stands on another one of the same node.
func (b *bed) passes(t *testing.T, w way, where string, count func() int) {
	t.Helper()
	flow := b.open(t, w)
	b.takes(t, w, func() { exchange(t, flow, 1) })
	before := count()
	exchange(t, flow, 20)
	if n := count() - before; n < 20 {
		t.Errorf("%s: %d packets %s, want 20", w, n, where)
	}
	if line := b.track(w.family, w.protocol, w.to()); !offloaded(line) {
		t.Errorf("%s: the connection is %q", w, line)
	}
	flow.Close()
	lab.Must(t, b.World.Node.ForgetFlows())
}

// TestBridge: a bridge, with a client behind it, and an endpoint. While it shows its packets to the rules (br_netfilter), connections by it
// stay there, whether that is so from the beginning or not.
func TestBridge(t *testing.T) {
	b := newBed(t, "")
	b.untilDevices("br-pods")
	b.byBridge(t, true)
	b.load("br_netfilter")
	for _, call := range []string{"iptables", "ip6tables", ""} {
		b.bridgesCall(strings.Fields(call)...)
		b.byBridge(t, call == "")
	}
	for _, text := range b.devices() {
		if strings.Contains(text, "veth-b") {
			t.Errorf("the port of a bridge is a device of the fast path: %s", text)
		}
	}
}

// bridgesCall has bridges show the packets of some families to the rules, and waits until Verdict knows.
func (b *bed) bridgesCall(families ...string) {
	b.t.Helper()
	for _, f := range []string{"iptables", "ip6tables"} {
		value := map[bool]int{true: 1}[slices.Contains(families, f)]
		lab.Must(b.t, b.World.Node.Sysctl(fmt.Sprintf("net.bridge.bridge-nf-call-%s=%d", f, value)))
	}
	stay := len(families) > 0 || isLinux(b.t, 7, 1)
	lab.Eventually(b.t, fmt.Sprintf("the rules keep connections by bridges: %t", stay), func() error {
		for _, family := range []string{"ip", "ip6"} {
			text, err := b.World.Node.Command("nft", "list", "chain", family, "verdict", "filter-forward")
			if err != nil || strings.Contains(text, `meta iifkind != "bridge" meta oifkind != "bridge" goto to-fast-path`) != stay {
				return errors.Join(err, errors.New(text))
			}
		}
		return nil
	})
	// Other findings do not matter.
	text, _ := b.World.Node.Command(binary, "check", "--fast-path=services", "--backend=nft", "--manifests="+b.Manifests)
	if strings.Contains(text, "--fast-path and bridges") != stay {
		b.t.Errorf("the rules keep connections by bridges: %t; verdict check prints\n%s", stay, text)
	}
}

// byBridge has connections of a client behind the bridge and to an endpoint behind it take the fast path, or not.
func (b *bed) byBridge(t *testing.T, fast bool) {
	t.Helper()
	for _, test := range []struct {
		pod, device string
		ways        []way
	}{
		{"c", lab.InnerLink, []way{
			{lab.IPv4, lab.TCP, "b", "VIP1", servicePort}, {lab.IPv4, lab.UDP, "b", "VIP1", servicePort},
			{lab.IPv6, lab.TCP, "b", "VIP1", servicePort}, {lab.IPv6, lab.UDP, "b", "VIP1", servicePort},
		}},
		{"b", "br-pods", ways()},
	} {
		b.web("", test.pod)
		b.untilAt(t, test.pod)
		lab.Must(t, b.World.Node.ForgetFlows())
		for _, w := range test.ways {
			if fast && !isLinux(t, 7, 1) {
				b.passesBy(t, w, test.device)
			} else {
				b.stays(t, w, "a bridge")
			}
		}
	}
}

// TestBridgeReset: where bridges show their packets to the rules, connection tracking sees a reset before the flowtable of the bridge does.
// It ends the entry of the connection all the same, whoever sends it.
func TestBridgeReset(t *testing.T) {
	b := newBed(t, "")
	b.load("br_netfilter")
	b.bridgesCall("iptables", "ip6tables")
	b.untilDevices("br-pods")
	for _, pod := range []string{"b", "c"} {
		b.resets(pod)
	}
	b.port = echoPort
	for _, test := range []struct{ client, endpoint, by string }{
		{"b", "c", "client"}, {"b", "c", "endpoint"}, {"a", "b", "client"}, {"a", "b", "endpoint"}, {lab.Outside, "b", "endpoint"},
	} {
		b.web("", test.endpoint)
		for _, f := range lab.Families() {
			t.Run(fmt.Sprintf("%s from %s to %s, by the %s", f, test.client, test.endpoint, test.by), func(t *testing.T) {
				w := way{f, lab.TCP, test.client, "VIP1", servicePort}
				if test.client == lab.Outside {
					w.name, w.port = "NODE", nodePort
				}
				conn := b.at(t, w, test.endpoint)
				for range 2 * after {
					if pod := asks(t, conn, "?"); pod != test.endpoint {
						t.Fatalf("pod %q answers", pod)
					}
				}
				t.Logf("the connection is %q", b.track(f, w.protocol, w.to(), port(conn)))
				if test.by == "endpoint" {
					asks(t, conn, "r")
				} else {
					lab.Must(t, conn.(*net.TCPConn).SetLinger(0), conn.Close())
				}
				lab.Eventually(t, "the connection ends", func() error {
					if line := b.track(f, w.protocol, w.to(), port(conn)); line == "" || offloaded(line) || strings.Contains(line, "ESTABLISHED") {
						return fmt.Errorf("it is %q", line)
					}
					return nil
				})
			})
		}
	}
}

// resets starts a server in a pod that answers each byte with the name of the pod, but r with a reset.
func (b *bed) resets(pod string) {
	b.t.Helper()
	b.serve(pod, func(conn *net.TCPConn) {
		question := make([]byte, 1)
		for {
			if _, err := conn.Read(question); err != nil || question[0] == 'r' {
				_, _ = conn.SetLinger(0), conn.Close()
				return
			}
			_, _ = conn.Write([]byte(pod)) // the client reports what it misses
		}
	})
}

// asks sends a byte, and returns the one that comes back; "": the connection is reset.
func asks(t *testing.T, conn net.Conn, question string) string {
	t.Helper()
	answer := make([]byte, 1)
	_, err := conn.Write([]byte(question))
	lab.Must(t, err, conn.SetReadDeadline(time.Now().Add(patience)))
	if n, err := conn.Read(answer); !errors.Is(err, unix.ECONNRESET) {
		lab.Must(t, err)
		return string(answer[:n])
	}
	return ""
}

// at opens a connection to a pod as soon as the Service leads there.
func (b *bed) at(t *testing.T, w way, pod string) (conn net.Conn) {
	t.Helper()
	lab.Eventually(t, "connections go to "+pod, func() (err error) {
		if conn, err = b.At(t, w.place).DialContext(t.Context(), "tcp", w.to().String()); err != nil {
			return err
		}
		if is := asks(t, conn, "?"); is != pod {
			return errors.Join(fmt.Errorf("they go to %q", is), conn.Close())
		}
		return nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestLeftOut: connections whose packets come or leave by a device that is not in the list stay on the rules, and a reset ends them. With
// both devices in the list, they take the fast path.
func TestLeftOut(t *testing.T) {
	flags := func(devices ...string) []string {
		return []string{"--fast-path-devices=" + strings.Join(devices, ","), "--fast-path=services", fmt.Sprintf("--fast-path-after=%d", after)}
	}
	b := newBed(t, "", flags(lab.InnerLink)...)
	b.untilDevices(lab.InnerLink)
	for _, f := range lab.Families() {
		w := outer(f)
		conn, err := b.At(t, w.place).DialContext(t.Context(), "tcp", w.to().String())
		lab.Must(t, err)
		ask(t, conn, "?\n", 3*after)
		if line := b.track(f, w.protocol, w.to(), port(conn)); line == "" || offloaded(line) {
			t.Errorf("%s: the client's device is not in the list, but the connection is %q", w, line)
		}
		client := netip.MustParseAddrPort(conn.LocalAddr().String()).Addr().String()
		b.says([]string{"the fast path does not have its device " + lab.OutsideLink + ","}, "", binary, "explain", client, w.to().String())
		lab.Must(t, conn.(*net.TCPConn).SetLinger(0), conn.Close())
		lab.Eventually(t, "a reset ends the connection", func() error {
			if line := b.track(f, w.protocol, w.to(), port(conn)); offloaded(line) || strings.Contains(line, "ESTABLISHED") {
				return fmt.Errorf("it is %q", line)
			}
			return nil
		})
	}
	lab.Must(t, b.Stop())
	b.run(flags(lab.InnerLink, lab.OutsideLink)...)
	b.untilDevices(lab.OutsideLink)
	for _, f := range lab.Families() {
		b.dial(t, outer(f))
		b.stays(t, inner(f), "a list without the device of the client")
	}
}
