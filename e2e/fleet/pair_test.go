//go:build e2e

package fleet

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// newPair is a bed with two balancers between two networks: clients outside, servers inside. There is no router. The addresses
// move from one balancer to the other.
func newPair(t testing.TB) *bed {
	b := &bed{t: t, scheduler: "mh", flags: []string{"--fleet"}, open: newRegistry()}
	b.client, b.router, b.servers = b.place("client"), b.place("switches"), b.place("servers")
	b.ip(b.router, "link add name outside type bridge", "link add name inside type bridge", "link set outside up", "link set inside up")
	attach := func(n *lab.Namespace, link, bridge string) {
		port := strings.ReplaceAll(n.Name, "balancer-", "") + "-" + link
		b.join(n, link, b.router, port)
		b.ip(b.router, "link set "+port+" master "+bridge)
	}
	attach(b.client, "eth0", "outside")
	attach(b.servers, "eth0", "inside")
	b.ip(b.client, "addr add 192.0.2.1/24 dev eth0", "addr add 2001:db8:80::1/64 dev eth0 nodad")
	b.serve()
	for i := range 2 {
		b.addBalancer(i+1, func(n *balancer) {
			attach(n.Namespace, "eth0", "outside")
			attach(n.Namespace, "eth1", "inside")
			host := 10 + n.number
			b.ip(n.Namespace, fmt.Sprintf("addr add 192.0.2.%d/24 dev eth0", host), fmt.Sprintf("addr add 2001:db8:80::%d/64 dev eth0 nodad", host),
				fmt.Sprintf("addr add 10.10.0.%d/24 dev eth1", host), fmt.Sprintf("addr add fd00:10::%d/64 dev eth1 nodad", host))
		})
	}
	return b
}

// keepalived starts keepalived on a balancer.
func (b *bed) keepalived(n *balancer, priority int) {
	b.t.Helper()
	b.write(n.dir, "keepalived.conf", example(b.t, "keepalived.conf", "priority 100", fmt.Sprint("priority ", priority)))
	at := func(name string) string { return filepath.Join(n.dir, name) }
	b.daemon(n.Namespace, n.dir, "keepalived", nil, "keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file="+at("keepalived.conf"),
		"--pid="+at("keepalived.pid"), "--vrrp_pid="+at("vrrp.pid"))
}

// owner waits until a balancer has all addresses, and no other one has any.
func (b *bed) owner(of *balancer) {
	b.t.Helper()
	b.until(of.Name+" has the addresses", func() error {
		for _, n := range b.balancers {
			text, err := n.Command("ip", "-o", "addr")
			if err != nil {
				return err
			}
			for _, a := range []string{vip4, vip6, "10.10.0.1", "fd00:10::1"} {
				if has := strings.Contains(text, " "+a+"/"); has != (n == of) && !n.down {
					return fmt.Errorf("%s has %s: %t", n.Name, a, has)
				}
			}
		}
		return nil
	})
}

// TestKeepalived: two boxes with the addresses of the example. They move when the box that has them drains, and when it dies. No
// open connection is lost.
func TestKeepalived(t *testing.T) {
	b := newPair(t)
	first, second := b.balancers[0], b.balancers[1]
	b.keepalived(first, 100)
	b.keepalived(second, 90)
	b.owner(first)
	var open []*held
	for _, f := range lab.Families() {
		open = append(open, b.hold(f, 100))
	}
	expect := func(when string) {
		t.Helper()
		for _, h := range open {
			h.expect(t, when)
		}
	}
	first.Must(t, "", binary, "drain", "--settle=5s", "--timeout=1s")
	b.owner(second)
	expect("after the first has drained")
	b.start(first)
	b.owner(first)
	expect("after it serves again")
	b.kill(first)
	first.down = true
	b.ip(first.Namespace, "link set dev eth0 down", "link set dev eth1 down")
	b.owner(second)
	expect("after it died")
	for _, f := range lab.Families() {
		b.hold(f, 10).expect(t, "new ones")
	}
}
