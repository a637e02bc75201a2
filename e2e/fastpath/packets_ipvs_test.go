//go:build ipvs

package fastpath

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// echoPort is that of servers that send back what they get.
const echoPort = 9000

// echoBed is a bed whose endpoint is an echo server in pod c. The function ends the server of UDP.
func echoBed(t *testing.T) (b *bed, endUDP func()) {
	t.Helper()
	b = newBed(t, "")
	b.serve("c", func(conn *net.TCPConn) {
		_, _ = io.Copy(conn, conn) // the client reports what it misses
		_ = conn.Close()
	})
	var socket net.PacketConn
	b.At(t, "c").MustDo(t, func() (err error) {
		socket, err = net.ListenUDP("udp", &net.UDPAddr{Port: echoPort})
		return err
	})
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := socket.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_, _ = socket.WriteTo(buf[:n], from)
		}
	}()
	b.port = echoPort
	b.web("", "c")
	for _, w := range ways() {
		lab.Eventually(t, "the echo server answers "+w.String(), func() error {
			conn, err := b.At(t, w.place).DialContext(t.Context(), w.protocol.String(), w.to().String())
			if err == nil {
				err = errors.Join(echo(conn, 1), conn.Close())
			}
			return err
		})
	}
	return b, func() { _ = socket.Close() }
}

// serve starts a server of TCP in a pod.
func (b *bed) serve(pod string, handle func(*net.TCPConn)) {
	b.t.Helper()
	var listener *net.TCPListener
	b.At(b.t, pod).MustDo(b.t, func() (err error) {
		listener, err = net.ListenTCP("tcp", &net.TCPAddr{Port: echoPort})
		return err
	})
	b.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.AcceptTCP()
			if err != nil {
				return // closed
			}
			go handle(conn)
		}
	}()
}

// echo sends some bytes, and reads them back.
func echo(conn net.Conn, size int) error {
	sent, got := bytes.Repeat([]byte("x"), size), make([]byte, size)
	err := conn.SetDeadline(time.Now().Add(patience))
	if err == nil {
		go func() { _, _ = conn.Write(sent) }() // an error shows in the answer
		_, err = io.ReadFull(conn, got)
	}
	if err == nil && !bytes.Equal(sent, got) {
		err = fmt.Errorf("the answer is %d other bytes", size)
	}
	return err
}

// echoing opens a connection to the echo server that takes the fast path.
func (b *bed) echoing(t *testing.T, w way) net.Conn {
	t.Helper()
	conn, err := b.At(t, w.place).DialContext(t.Context(), w.protocol.String(), w.to().String())
	lab.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	from := int(netip.MustParseAddrPort(conn.LocalAddr().String()).Port())
	for range after {
		lab.Must(t, echo(conn, 1))
	}
	b.takes(t, w, func() { lab.Must(t, echo(conn, 1)) }, from)
	return conn
}

// TestPackets: what the fast path cannot forward itself arrives all the same.
func TestPackets(t *testing.T) {
	b, endUDP := echoBed(t)
	mtu := func(n string) { // at both ends: one drops what is larger than the other's (is_skb_forwardable)
		b.At(t, "c").Must(t, "", "ip", "link", "set", "eth0", "mtu", n)
		b.At(t, lab.Remote).Must(t, "", "ip", "link", "set", "veth-c", "mtu", n)
	}
	var ended []func() string
	for _, w := range ways() {
		t.Run(w.String(), func(t *testing.T) {
			conn := b.echoing(t, w)
			if w.protocol == lab.UDP {
				lab.Must(t, echo(conn, 4000), echo(conn, 1)) // fragments, in both directions
				return
			}
			lab.Must(t, echo(conn, 200_000))
			mtu("1300") // the router answers "too big" to large packets
			lab.Must(t, echo(conn, 200_000))
			mtu("1500")
			halfOpen(t, conn.(*net.TCPConn))
			ended = append(ended, func() string { return b.track(w.family, w.protocol, w.to(), port(conn)) })
		})
	}
	for _, track := range ended {
		lab.Eventually(t, "connection tracking has seen the end", func() error {
			if line := track(); strings.Contains(line, "ESTABLISHED") || offloaded(line) {
				return fmt.Errorf("the connection is %q", line)
			}
			return nil
		})
	}
	var flows []net.Conn
	for _, w := range ways() {
		if w.protocol == lab.UDP {
			flows = append(flows, b.echoing(t, w))
		}
	}
	endUDP()
	for _, conn := range flows {
		if err := echo(conn, 1); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: after the server ended, the client gets %v, want port unreachable", conn.RemoteAddr(), err)
		}
	}
}

// halfOpen has the client send, close its side, and read everything afterwards.
func halfOpen(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	const size = 100_000
	lab.Must(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err := conn.Write(make([]byte, size))
	lab.Must(t, err, conn.CloseWrite())
	if n, err := io.Copy(io.Discard, conn); n != size || err != nil {
		t.Errorf("after the client closed its side, it gets %d bytes and the error %v, want %d", n, err, size)
	}
}

// TestUnanswered: without an answer, nothing takes the fast path.
func TestUnanswered(t *testing.T) {
	b := newBed(t, "")
	b.At(t, "c").Must(t, "table inet silent { chain o { type filter hook output priority 0; meta l4proto { tcp, udp } th sport 8080 drop; }; }", "nft", "-f", "-")
	for _, w := range ways() {
		q := w.question()
		q.Patience = time.Second
		flow, err := (*lab.Flow)(nil), error(nil)
		if w.protocol == lab.TCP { // it sends its SYN twice
			q.Patience = 2 * time.Second
			b.At(t, w.place).Ask(q)
		} else {
			b.At(t, w.place).MustDo(t, func() error { flow, err = lab.Open(q); return err })
			for range 3 * after {
				flow.Send(time.Millisecond)
			}
			flow.Close()
		}
		if line := b.track(w.family, w.protocol, w.to()); line == "" || offloaded(line) || !strings.Contains(line, "[UNREPLIED]") {
			t.Errorf("%s: the connection is %q, want one without an answer", w, line)
		}
	}
}

// hops counts packets of Services by their time to live, where they arrive.
func hops(port string, ttl int) string {
	return fmt.Sprintf(`table inet hops {
	counter right { }
	counter wrong { }
	chain p { type filter hook prerouting priority -300; %s ip ttl %[2]d counter name right accept; %[1]s ip6 hoplimit %[2]d counter name right accept; %[1]s counter name wrong; }
}`, port, ttl)
}

// TestTTL: packets lose one hop at the node on the fast path, too, in both directions.
func TestTTL(t *testing.T) {
	b := newBed(t, "")
	b.At(t, "c").Must(t, hops("tcp dport 8080", 62), "nft", "-f", "-") // behind the node and the other node
	b.At(t, "a").Must(t, hops("tcp sport 80", 62), "nft", "-f", "-")
	for _, f := range lab.Families() {
		conn := b.dial(t, way{f, lab.TCP, "a", "VIP1", servicePort})
		ask(t, conn, "?\n", 10)
	}
	for _, pod := range []string{"a", "c"} {
		text := b.At(t, pod).Must(t, "", "nft", "list", "counters", "table", "inet", "hops")
		n := regexp.MustCompile(`packets (\d+)`).FindAllString(text, -1)
		if len(n) != 2 || n[0] == "packets 0" || n[1] != "packets 0" {
			t.Errorf("at pod %s, the packets are\n%s", pod, text)
		}
	}
}

// secondLink joins the node with a place by another link. The functions lead packets of one side over it.
func (b *bed) secondLink(t *testing.T, place string) (fromNode, fromPlace func(to string, table int)) {
	t.Helper()
	other := b.At(t, place)
	lab.Must(t, netns.Connect(b.World.Node.Namespace, "second", other.Namespace, "second"))
	for i, n := range []*lab.Namespace{b.World.Node, other} {
		lab.Must(t, n.AddAddress("second", netip.MustParsePrefix(fmt.Sprintf("172.31.0.%d/24", i+1))),
			n.AddAddress("second", netip.MustParsePrefix(fmt.Sprintf("fd00:31::%d/64", i+1))))
	}
	over := func(n *lab.Namespace, gateway int) func(to string, table int) {
		return func(to string, table int) {
			for _, f := range lab.Families() {
				at := map[lab.Family]string{lab.IPv4: "172.31.0.%d", lab.IPv6: "fd00:31::%d"}[f]
				n.Must(t, "", "ip", "route", "replace", lab.MustText(f, to), "via", fmt.Sprintf(at, gateway), "dev", "second", "table", fmt.Sprint(table))
			}
		}
	}
	b.untilDevices("second")
	return over(b.World.Node, 2), over(other, 1)
}

// sent is how many packets the node has sent over a link.
func (b *bed) sent(link string) int { return packets(b.t, b.World.Node, link, "tx") }

// packets is how many packets a device has sent ("tx") or received ("rx").
func packets(t testing.TB, at *lab.Namespace, link, direction string) int {
	t.Helper()
	text := at.Must(t, "", "ip", "-j", "-s", "link", "show", "dev", link)
	n, err := strconv.Atoi(regexp.MustCompile(`"` + direction + `":\{"bytes":\d+,"packets":(\d+)`).FindStringSubmatch(text)[1])
	lab.Must(t, err)
	return n
}

const mainTable, otherTable, viaNode = 254, 200, 100

// TestRoutes: where routes differ by direction or by rules, packets go where the routes say.
func TestRoutes(t *testing.T) {
	b := newBed(t, "")
	for _, test := range []struct {
		name, place string // that the second link leads to
		route       func(fromNode, fromPlace func(string, int))
		way         func(lab.Family) way
		fast        bool
		sends       string // the link over which the node sends packets of the client to the endpoint
	}{
		{"answers of the endpoint come by another device", lab.Remote, func(_, fromPlace func(string, int)) {
			fromPlace("PODS", viaNode)
		}, inner, false, lab.InnerLink},
		{"a rule by the source leads to another device", lab.Remote, func(fromNode, _ func(string, int)) {
			fromNode("REMOTE_PODS", otherTable)
			b.rules("from", "A")
		}, inner, false, "second"},
		{"a rule by the source, and answers come the same way", lab.Remote, func(fromNode, fromPlace func(string, int)) {
			fromNode("REMOTE_PODS", otherTable)
			b.rules("from", "A")
			fromPlace("PODS", viaNode)
		}, inner, true, "second"},
		{"a rule by the mark of the connection", lab.Remote, func(fromNode, _ func(string, int)) {
			fromNode("REMOTE_PODS", otherTable)
			b.rules("fwmark", "")
			b.World.Node.Must(t, `table inet marks { chain p { type filter hook prerouting priority -150; iifname "veth-a" ct mark set 7; ct mark 7 meta mark set 7; }; }`, "nft", "-f", "-")
		}, inner, false, "second"},
		{"packets of the client come by another device", lab.Outside, func(_, fromPlace func(string, int)) {
			fromPlace("NODE", mainTable)
		}, outer, true, lab.InnerLink},
	} {
		t.Run(test.name, func(t *testing.T) {
			fromNode, fromPlace := b.secondLink(t, test.place)
			test.route(fromNode, fromPlace)
			for _, f := range lab.Families() {
				w := test.way(f)
				flow := b.open(t, w)
				if test.fast {
					b.takes(t, w, func() { exchange(t, flow, 1) })
				}
				before := b.sent(test.sends)
				exchange(t, flow, 30)
				if n := b.sent(test.sends) - before; n < 30 {
					t.Errorf("%s: the node sends %d packets over the link %s, want 30", w, n, test.sends)
				}
				if line := b.track(w.family, w.protocol, w.to()); offloaded(line) != test.fast {
					t.Errorf("%s: the connection is %q", w, line)
				}
				flow.Close()
			}
			lab.Must(t, b.World.Node.DeleteLink("second"), b.World.Node.ForgetFlows())
			b.World.Node.Must(t, "table inet marks { }; delete table inet marks", "nft", "-f", "-")
			for _, f := range []string{"-4", "-6"} {
				b.World.Node.Must(t, "", "sh", "-c", fmt.Sprintf("while ip %s rule delete table %d 2>/dev/null; do :; done", f, otherTable))
			}
		})
	}
}

func inner(f lab.Family) way { return way{f, lab.TCP, "a", "VIP1", servicePort} }
func outer(f lab.Family) way { return way{f, lab.TCP, lab.Outside, "NODE", nodePort} }

// rules has the node route packets from an address, or those with the mark 7, by the other table.
func (b *bed) rules(selector, name string) {
	b.t.Helper()
	for i, f := range lab.Families() {
		value := "7"
		if name != "" {
			value = lab.MustText(f, name)
		}
		b.World.Node.Must(b.t, "", "ip", []string{"-4", "-6"}[i], "rule", "add", selector, value, "table", fmt.Sprint(otherTable))
	}
}
