//go:build e2e || ipvs

package fleet

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// narrow is the MTU of a link on the way to distant clients. Both ends of connections have 1500.
const narrow = 1300

// distant makes a client behind two routers, with a narrow link between them. The router near the fleet finds that packets are
// too big, and says so to their sender, the virtual address: what it sends passes the router of the fleet.
func (b *bed) distant() *lab.Namespace {
	client, far, near := b.place("distant"), b.place("far"), b.place("near")
	b.join(client, "eth0", far, "client")
	b.join(far, "narrow", near, "narrow")
	b.join(near, "fleet", b.router, "distant")
	lab.Must(b.t, near.LimitICMP(false))
	for i := range downloads {
		b.ip(client, fmt.Sprintf("addr add 203.0.113.%d/24 dev eth0", 100+i), fmt.Sprintf("addr add 2001:db8:113::%d/64 dev eth0 nodad", 100+i))
	}
	b.ip(client, "route add default via 203.0.113.1", "route add default via 2001:db8:113::1")
	b.ip(far, "addr add 203.0.113.1/24 dev client", "addr add 2001:db8:113::1/64 dev client nodad", fmt.Sprint("link set narrow mtu ", narrow),
		"addr add 198.18.0.1/24 dev narrow", "addr add fd00:18::1/64 dev narrow nodad", "route add default via 198.18.0.2", "route add default via fd00:18::2")
	b.ip(near, "addr add 198.18.0.2/24 dev narrow", "addr add fd00:18::2/64 dev narrow nodad", fmt.Sprint("link set narrow mtu ", narrow),
		"addr add 198.18.1.1/24 dev fleet", "addr add fd00:18:1::1/64 dev fleet nodad", "route add default via 198.18.1.2", "route add default via fd00:18:1::2",
		"route add 203.0.113.0/24 via 198.18.0.1", "route add 2001:db8:113::/64 via fd00:18::1")
	b.ip(b.router, "addr add 198.18.1.2/24 dev distant", "addr add fd00:18:1::2/64 dev distant nodad",
		"route add 203.0.113.0/24 via 198.18.1.1", "route add 2001:db8:113::/64 via fd00:18:1::1")
	return client
}

// Downloads of TestPacketTooBig, each from a client address of its own.
const downloads, size = 12, 20_000

// download has servers send to as many clients at once. It returns how many downloads hang: the server has sent a segment
// six times again, which takes 12 seconds, and the client has not all.
func (b *bed) download(client *lab.Namespace, f lab.Family) (hang int) {
	b.t.Helper()
	type one struct {
		client, server net.Conn
		got            atomic.Bool
	}
	list := make([]*one, downloads)
	for i := range list {
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(map[lab.Family]string{
			lab.IPv4: fmt.Sprint("203.0.113.", 100+i), lab.IPv6: fmt.Sprint("2001:db8:113::", 100+i),
		}[f])}}
		var c net.Conn
		client.MustDo(b.t, func() (err error) { c, err = d.DialContext(b.t.Context(), "tcp", vip(f)); return err })
		b.t.Cleanup(func() { abort(c) })
		lab.Must(b.t, exchange(c, c, patience))
		list[i] = &one{client: c, server: b.open.of(c)}
	}
	for _, x := range list {
		_, err := x.server.Write(make([]byte, size))
		lab.Must(b.t, err)
		go func() {
			_, err := io.ReadFull(x.client, make([]byte, size))
			x.got.Store(err == nil)
		}()
	}
	b.until("each download ends or hangs", func() error {
		hang = 0
		for _, x := range list {
			switch again := repetitions(b.t, x.server); {
			case x.got.Load():
			case again >= 6:
				hang++
			default:
				return fmt.Errorf("a segment was sent %d times again", again)
			}
		}
		return nil
	})
	return hang
}

// repetitions is how often a segment that was not acknowledged was sent again.
func repetitions(t testing.TB, c net.Conn) (n int) {
	socket, err := c.(*net.TCPConn).SyscallConn()
	lab.Must(t, err)
	var info *unix.TCPInfo
	lab.Must(t, socket.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }))
	lab.Must(t, err)
	return int(info.Retransmits)
}

// ruleset is the part of FLEET.md that sets the size of segments.
func ruleset(t *testing.T) string {
	text, err := os.ReadFile("../../config/deploy/FLEET.md")
	lab.Must(t, err)
	_, rest, found := strings.Cut(string(text), "      table inet mss {\n")
	table, _, ends := strings.Cut(rest, "\n      }\n")
	if !found || !ends {
		t.Fatal("FLEET.md has no table inet mss")
	}
	return "table inet mss {\n" + table + "\n}\n"
}

// hashInner has rules of the router and of the gateway pick a balancer by the client's address and port: the source at the router,
// the destination at the gateway, and in an ICMP error the destination of the packet that was too big.
func (b *bed) hashInner() {
	b.t.Helper()
	const to = " mod 3 seed 0x1 offset 1\n"
	const chain = "table inet inner { chain prerouting { type filter hook prerouting priority mangle;\n"
	b.router.Must(b.t, chain+"ip daddr "+vip4+" tcp dport 80 meta mark set jhash ip saddr . tcp sport"+to+
		"ip6 daddr "+vip6+" tcp dport 80 meta mark set jhash ip6 saddr . tcp sport"+to+
		"ip daddr "+vip4+" icmp type destination-unreachable meta mark set jhash @th,192,32 . @th,240,16"+to+
		"ip6 daddr "+vip6+" icmpv6 type packet-too-big meta mark set jhash @th,256,128 . @th,400,16"+to+"}\n}\n", "nft", "-f", "-")
	b.gateway.Must(b.t, chain+"meta nfproto ipv4 tcp sport 8080 meta mark set jhash ip daddr . tcp dport"+to+
		"meta nfproto ipv6 tcp sport 8080 meta mark set jhash ip6 daddr . tcp dport"+to+"}\n}\n", "nft", "-f", "-")
	for _, n := range b.balancers {
		for f, family := range map[lab.Family]string{lab.IPv4: "-4", lab.IPv6: "-6"} {
			for place, via := range map[*lab.Namespace]string{b.router: up(f, n.number, 2), b.gateway: below(f, n.number)} {
				place.Must(b.t, "", "ip", family, "route", "add", "default", "via", via, "table", fmt.Sprint(100+n.number))
				place.Must(b.t, "", "ip", family, "rule", "add", "fwmark", fmt.Sprint(n.number), "table", fmt.Sprint(100+n.number))
			}
		}
	}
}

// TestPacketTooBig: what FLEET.md says about downloads over a path with a small MTU. The router hashes "packet too big" by the
// address of the router that sends it, so most downloads hang, and each remedy helps.
func TestPacketTooBig(t *testing.T) {
	for name, remedy := range map[string]func(*bed){
		"none": nil,
		"MSS clamping": func(b *bed) {
			for _, n := range b.balancers {
				n.Must(t, ruleset(t), "nft", "-f", "-")
			}
		},
		"tcp_mtu_probing": func(b *bed) { lab.Must(t, b.servers.Sysctl("net.ipv4.tcp_mtu_probing=1")) },
		"inner header":    (*bed).hashInner,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "mh", "--fleet")
			client := b.distant()
			if remedy != nil {
				remedy(b)
			}
			for _, f := range lab.Families() {
				hang := b.download(client, f)
				t.Logf("%s: %d of %d downloads hang", f, hang, downloads)
				if (hang > 0) != (remedy == nil) {
					t.Errorf("%s: %d of %d downloads hang", f, hang, downloads)
				}
			}
		})
	}
}
