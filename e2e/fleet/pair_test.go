//go:build e2e || ipvs

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
func newPair(t testing.TB, scheduler string, flags ...string) *bed {
	b := &bed{t: t, scheduler: scheduler, flags: flags, open: newRegistry()}
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
	b.startKeepalived(n, "--vrrp")
}

func (b *bed) startKeepalived(n *balancer, flags ...string) {
	b.t.Helper()
	at := func(name string) string { return filepath.Join(n.dir, name) }
	command := []string{"keepalived", "--dont-fork", "--log-console", "--use-file=" + at("keepalived.conf"),
		"--pid=" + at("keepalived.pid"), "--vrrp_pid=" + at("vrrp.pid"), "--checkers_pid=" + at("checkers.pid")}
	b.daemon(n.Namespace, n.dir, "keepalived", nil, append(command, flags...)...)
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

// patient is the example for an emulated processor: only the death of a box moves the addresses.
func (b *bed) patient(n *balancer, replace ...string) string {
	return example(b.t, "keepalived.conf", append(replace, "priority 100", fmt.Sprint("priority ", 110-10*n.number),
		`script "/usr/bin/curl`, `script "/bin/true`, "advert_int 0.2", "advert_int 2")...)
}

// withSync is the configuration of keepalived without Verdict: it balances by turns with IPVS, and the kernel
// sends its connections to the other box.
func (b *bed) withSync(n *balancer) string {
	text := b.patient(n, "vrrp_version 3", "vrrp_version 3\n  lvs_sync_daemon eth1 inside4 id 7")
	text += "virtual_server " + vip4 + " 80 {\n  lb_algo rr\n  lb_kind NAT\n  protocol TCP\n"
	for i := range endpoints {
		text += fmt.Sprintf("  real_server %s 8080 {\n  }\n", endpoint(lab.IPv4, i))
	}
	return text + "}\n"
}

// unlist takes an endpoint out as keepalived does when its check fails, and puts the one before in again.
func (n *balancer) unlist(number int) error {
	at := []string{"-t", vip(lab.IPv4), "-r"}
	server := func(i int) string { return fmt.Sprintf("%s:8080", endpoint(lab.IPv4, i)) }
	_, _ = n.Command("ipvsadm", append(append([]string{"-a"}, at...), server((number+endpoints-step)%endpoints), "-m")...) // the first time, it is there
	_, err := n.Command("ipvsadm", append(append([]string{"-d"}, at...), server(number))...)
	return err
}

// TestKeepalived: two boxes with the addresses of the example. They move when the box that has them drains, and when it dies. No
// open connection is lost.
func TestKeepalived(t *testing.T) {
	b := newPair(t, "mh", "--fleet")
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

// TestPairs compares pairs of boxes whose addresses keepalived moves.
func TestPairs(t *testing.T) {
	t.Run("fleet", func(t *testing.T) { pairDies(t, "mh", 0, 0, "--fleet") })
	t.Run("random", func(t *testing.T) { pairDies(t, "random", connections/2, connections) })
}

// pairDies has one of two boxes die, and logs how many open connections are lost, also while endpoints change.
func pairDies(t *testing.T, scheduler string, least, most int, flags ...string) {
	t.Helper()
	for name, meanwhile := range map[string]func(*bed) (end func()){
		"quiet": func(*bed) func() { return quiet() }, "another endpoint is left out every second": (*bed).change,
	} {
		t.Run(name, func(t *testing.T) {
			b := newPair(t, scheduler, flags...)
			for _, n := range b.balancers {
				if scheduler == "" {
					b.write(n.dir, "keepalived.conf", b.withSync(n))
					b.startKeepalived(n)
				} else {
					b.write(n.dir, "keepalived.conf", b.patient(n))
					b.startKeepalived(n, "--vrrp")
				}
			}
			first, second := b.balancers[0], b.balancers[1]
			b.owner(first)
			open := b.hold(lab.IPv4, connections)
			open.expect(t, "before the death")
			defer meanwhile(b)()
			if first.process != nil {
				b.kill(first)
			}
			first.down = true
			b.ip(first.Namespace, "link set dev eth0 down", "link set dev eth1 down")
			b.owner(second)
			asking, silent := open.use(patience)
			t.Logf("%d of %d open connections lost (%d asking, %d silent)", asking+silent, connections, asking, silent)
			if lost := asking + silent; name == "quiet" && (lost < least || lost > most) {
				t.Errorf("%d are lost, want %d to %d", lost, least, most)
			}
		})
	}
}
