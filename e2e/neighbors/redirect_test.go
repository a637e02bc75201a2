//go:build e2e

package neighbors

import (
	"context"
	bits "encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Ports and the mark of a service mesh's proxy, as Istio has them.
const (
	meshPort = 15001
	meshMark = 1337
)

// redirection is what a service mesh writes in a pod: its proxy gets all TCP connections of the pod and to the pod, except
// for those that the proxy opens.
const redirection = `add table inet mesh
add chain inet mesh out { type nat hook output priority -100; }
add chain inet mesh in { type nat hook prerouting priority -100; }
add rule inet mesh out meta mark 1337 return
add rule inet mesh out oifname lo return
add rule inet mesh out meta l4proto tcp redirect to :15001
add rule inet mesh in tcp dport 8080 redirect to :15001
`

// TestRedirectionInPods: both pods have a service mesh's proxy. The first one opens the connection to the cluster IP anew,
// and Verdict translates that one.
func TestRedirectionInPods(t *testing.T) {
	needs(t, "nft")
	b := newBed(t)
	b.startVerdict(t)
	for _, pod := range []string{"d", "b"} {
		b.At(t, pod).Must(t, redirection, "nft", "-f", "-")
	}
	for _, f := range lab.Families() {
		client, server := newMeshProxy(t, b.At(t, "d"), f, originalDestination), newMeshProxy(t, b.At(t, "b"), f, originalDestination)
		q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f, "VIP4", servicePort), Patience: 10 * time.Second}
		for range asks {
			if r := b.At(t, "d").Ask(q); r.Outcome != lab.Answered || r.Answer.Pod != "b" {
				t.Fatalf("%s: %s, want an answer of pod b", q, r)
			}
		}
		if got := client.destination.Load(); *got != q.To {
			t.Errorf("the client's proxy sees a connection to %s, want the cluster IP %s", got, q.To)
		}
		if got, want := server.destination.Load().Addr(), lab.PodAddress(f, "b"); got != want {
			t.Errorf("the server's proxy sees a connection to %s, want the pod %s", got, want)
		}
	}
}

// transparent gives the connections of pod a to port 80 to a program on the node.
const transparent = `add table inet diverted
add chain inet diverted early { type filter hook prerouting priority raw; }
add chain inet diverted early-out { type filter hook output priority raw; }
add counter inet diverted resets
add chain inet diverted late-out { type filter hook output priority 300; }
add rule inet diverted late-out oifname veth-a tcp flags & rst == rst counter name resets
add chain inet diverted divert { type filter hook prerouting priority mangle; }
add rule inet diverted divert iifname veth-a tcp dport 80 meta mark set 1 tproxy to :15001 accept
`

// TestTransparentProxyOnNode: a program on the node takes connections of a pod with tproxy. That works where the packets
// pass no connection tracking ("notrack" at priority raw, in both directions). Otherwise Verdict translates the first packet
// after tproxy has chosen the listener, so the socket has the address of the endpoint. tproxy looks at each later packet
// before it is translated back, finds no socket for the cluster IP, and the listener resets the connection.
func TestTransparentProxyOnNode(t *testing.T) {
	needs(t, "nft")
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) {
			b := newBed(t)
			b.startVerdict(t)
			family, all := map[lab.Family]string{lab.IPv4: "-4", lab.IPv6: "-6"}[f], map[lab.Family]string{lab.IPv4: "0.0.0.0/0", lab.IPv6: "::/0"}[f]
			b.Node.Must(t, "", "ip", family, "rule", "add", "fwmark", "1", "lookup", "200")
			b.Node.Must(t, "", "ip", family, "route", "add", "local", all, "dev", "lo", "table", "200")
			b.Node.Must(t, transparent, "nft", "-f", "-")
			p := newMeshProxy(t, b.Node, f, localAddress)
			q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f, "VIP4", servicePort), Patience: 10 * time.Second}
			if r := b.At(t, "a").Ask(q); r.Outcome == lab.Answered {
				t.Errorf("tracked packets: %s: %s, want that it fails; then the documents can say so", q, r)
			}
			if out := b.Node.Must(t, "", "nft", "list", "counter", "inet", "diverted", "resets"); contains(out, "packets 0 ") {
				t.Errorf("tracked packets: no reset was sent to the pod: %s", out)
			}
			b.Node.Must(t, `add rule inet diverted early iifname veth-a tcp dport 80 notrack
add rule inet diverted early-out oifname veth-a tcp sport 80 notrack
`, "nft", "-f", "-")
			for range asks {
				if r := b.At(t, "a").Ask(q); r.Outcome != lab.Answered || r.Answer.Pod != "b" {
					t.Fatalf("%s: %s, want an answer of pod b", q, r)
				}
			}
			if got := p.destination.Load(); *got != q.To {
				t.Errorf("the proxy sees a connection to %s, want the cluster IP %s", got, q.To)
			}
		})
	}
}

// meshProxy opens each connection that it gets anew, with the mark.
type meshProxy struct {
	destination atomic.Pointer[netip.AddrPort] // of the last connection
	asked       func(*net.TCPConn) (netip.AddrPort, error)
	at          *lab.Namespace
}

func newMeshProxy(t *testing.T, at *lab.Namespace, f lab.Family, asked func(*net.TCPConn) (netip.AddrPort, error)) *meshProxy {
	t.Helper()
	p := &meshProxy{asked: asked, at: at}
	var l net.Listener
	err := at.Do(func() (err error) {
		transparent, level := unix.IP_TRANSPARENT, unix.SOL_IP
		if f == lab.IPv6 {
			transparent, level = unix.IPV6_TRANSPARENT, unix.SOL_IPV6
		}
		config := net.ListenConfig{Control: option(level, transparent, 1)}
		l, err = config.Listen(t.Context(), fmt.Sprint("tcp", int(f)), fmt.Sprint(":", meshPort))
		return err
	})
	lab.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go p.pass(conn.(*net.TCPConn))
		}
	}()
	return p
}

// pass copies both directions. A client that gets nothing reports it.
func (p *meshProxy) pass(client *net.TCPConn) {
	defer client.Close()
	to, err := p.asked(client)
	if err != nil {
		return
	}
	p.destination.Store(&to)
	var server net.Conn
	err = p.at.Do(func() (err error) {
		d := net.Dialer{Control: option(unix.SOL_SOCKET, unix.SO_MARK, meshMark), Timeout: 10 * time.Second}
		server, err = d.DialContext(context.Background(), "tcp", to.String())
		return err
	})
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, client) }()
	_, _ = io.Copy(client, server)
}

func option(level, name, value int) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, value) })
		if failed != nil {
			return failed
		}
		return err
	}
}

// localAddress is what a connection asked for if it was not translated.
func localAddress(c *net.TCPConn) (netip.AddrPort, error) {
	return netip.ParseAddrPort(c.LocalAddr().String())
}

// originalDestination is what a connection asked for before its translation.
func originalDestination(c *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	failed := raw.Control(func(fd uintptr) {
		if netip.MustParseAddrPort(c.LocalAddr().String()).Addr().Is4() {
			var a *unix.IPv6Mreq // as large as the address
			if a, err = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); err == nil {
				to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.Multiaddr[4:8])), bits.BigEndian.Uint16(a.Multiaddr[2:4]))
			}
			return
		}
		var a *unix.IPv6MTUInfo // begins with the address
		if a, err = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, ip6OriginalDestination); err == nil {
			port := bits.NativeEndian.AppendUint16(nil, a.Addr.Port)
			to = netip.AddrPortFrom(netip.AddrFrom16(a.Addr.Addr), bits.BigEndian.Uint16(port))
		}
	})
	if failed != nil {
		return to, failed
	}
	return to, err
}

// ip6OriginalDestination is IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv6/ip6_tables.h.
const ip6OriginalDestination = 80
