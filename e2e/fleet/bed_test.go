//go:build e2e || ipvs

package fleet

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/e2e/program"
)

var binary string // the verdict under test

func TestMain(m *testing.M) { os.Exit(netns.Enter(func() int { return program.Main(m, &binary) })) }

const (
	balancers = 3
	endpoints = 50
)

// The addresses of both families.
const (
	vip4, vip6       = "192.0.2.80", "2001:db8:80::80"
	client4, client6 = "198.51.100.2", "2001:db8:51::2"
)

func vip(f lab.Family) string {
	if f == lab.IPv6 {
		return "[" + vip6 + "]:80"
	}
	return vip4 + ":80"
}

// balancer is a machine with Verdict.
type balancer struct {
	*lab.Namespace
	number  int
	dir     string
	process *lab.Process
	down    bool
}

// bed is the network: client, router, balancers side by side, gateway, and the servers in one namespace.
type bed struct {
	t                                testing.TB
	client, router, gateway, servers *lab.Namespace
	balancers                        []*balancer
	flags                            []string
	scheduler                        string
	open                             *registry
}

func newBed(t testing.TB, scheduler string, flags ...string) *bed {
	b := &bed{t: t, flags: flags, scheduler: scheduler, open: newRegistry()}
	b.client, b.router, b.gateway, b.servers = b.place("client"), b.place("router"), b.place("gateway"), b.place("servers")
	lab.Must(t, b.client.Sysctl("net.ipv4.ip_local_port_range=1024 65535"))
	b.join(b.client, "eth0", b.router, "client")
	b.ip(b.client, "addr add "+client4+"/24 dev eth0", "addr add "+client6+"/64 dev eth0 nodad",
		"route add default via 198.51.100.1", "route add default via 2001:db8:51::1")
	b.ip(b.router, "addr add 198.51.100.1/24 dev client", "addr add 2001:db8:51::1/64 dev client nodad")
	b.join(b.servers, "eth0", b.gateway, "servers")
	// A bridge without an address of its own has that of a port, and another one when the port is gone: the neighbors would
	// not find it.
	b.ip(b.gateway, "link add name bridge0 address 02:00:00:00:00:fe type bridge", "link set bridge0 up", "addr add 10.9.0.254/24 dev bridge0", "addr add fd00:9::fe/64 dev bridge0 nodad",
		"addr add 10.10.0.1/24 dev servers", "addr add fd00:10::1/64 dev servers nodad")
	b.serve()
	for i := range balancers {
		b.addBalancer(i+1, b.plug)
	}
	// Both directions of a connection must pass one balancer at its beginning. So the router looks at the source, the
	// gateway at the destination, and both hash it alike.
	b.hash(b.router, "0x11")
	b.hash(b.gateway, "0x22")
	b.route(b.alive()...)
	return b
}

func (b *bed) place(name string) *lab.Namespace {
	b.t.Helper()
	n, err := lab.NewNamespace(name)
	lab.Must(b.t, err)
	b.t.Cleanup(func() { n.Close() })
	if err := n.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
		"net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.default.send_redirects=0"); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bed) join(one *lab.Namespace, link string, other *lab.Namespace, otherLink string) {
	b.t.Helper()
	lab.Must(b.t, netns.Connect(one.Namespace, link, other.Namespace, otherLink))
}

func (b *bed) ip(n *lab.Namespace, commands ...string) {
	b.t.Helper()
	n.Must(b.t, strings.Join(commands, "\n")+"\n", "ip", "-batch", "-")
}

// hash has multipath routes hash some fields of packets with a fixed seed.
func (b *bed) hash(n *lab.Namespace, fields string) {
	b.t.Helper()
	err := n.Sysctl("net.ipv4.fib_multipath_hash_policy=3", "net.ipv4.fib_multipath_hash_fields="+fields, "net.ipv4.fib_multipath_hash_seed=1",
		"net.ipv6.fib_multipath_hash_policy=3", "net.ipv6.fib_multipath_hash_fields="+fields)
	lab.Must(b.t, err)
}

// up and below are a balancer's addresses: towards the router and towards the servers.
func up(f lab.Family, number, host int) string {
	if f == lab.IPv6 {
		return fmt.Sprintf("fd00:8:0:%d::%d", number, host)
	}
	return fmt.Sprintf("10.8.%d.%d", number, host)
}

func below(f lab.Family, number int) string {
	if f == lab.IPv6 {
		return fmt.Sprintf("fd00:9::%d", number)
	}
	return fmt.Sprintf("10.9.0.%d", number)
}

func endpoint(f lab.Family, i int) netip.Addr {
	if f == lab.IPv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:10::1:%x", i+1))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.10.0.%d", 100+i))
}

func (b *bed) addBalancer(number int, plug func(*balancer)) {
	n := &balancer{Namespace: b.place(fmt.Sprint("balancer-", number)), number: number, dir: b.t.TempDir()}
	b.balancers = append(b.balancers, n)
	plug(n)
	if b.scheduler == "" {
		return // without Verdict
	}
	lab.Must(b.t, n.manifests(b.scheduler, endpoints))
	b.start(n)
	b.t.Cleanup(func() {
		lab.SaveIfFailed(b.t, n.Namespace, n.process)
		if !n.down {
			_ = n.process.Kill()
		}
	})
}

// plug connects a balancer to the router and to the servers.
func (b *bed) plug(n *balancer) {
	to, below1 := fmt.Sprint("to-", n.number), fmt.Sprint("port-", n.number)
	b.join(n.Namespace, "up", b.router, to)
	b.join(n.Namespace, "below", b.gateway, below1)
	b.ip(b.gateway, "link set "+below1+" master bridge0")
	behind := map[lab.Family]string{lab.IPv4: "10.10.0.0/24 via 10.9.0.254", lab.IPv6: "fd00:10::/64 via fd00:9::fe"}
	for f, bits := range map[lab.Family]int{lab.IPv4: 24, lab.IPv6: 64} {
		nodad := map[lab.Family]string{lab.IPv6: " nodad"}[f]
		b.ip(b.router, fmt.Sprintf("addr add %s/%d dev %s%s", up(f, n.number, 1), bits, to, nodad))
		b.ip(n.Namespace, fmt.Sprintf("addr add %s/%d dev up%s", up(f, n.number, 2), bits, nodad),
			fmt.Sprintf("addr add %s/%d dev below%s", below(f, n.number), bits, nodad), "route add default via "+up(f, n.number, 1), "route add "+behind[f])
	}
}

// start starts Verdict and waits until it serves.
func (b *bed) start(n *balancer) {
	b.t.Helper()
	command := append([]string{
		binary, "run", "--manifests=" + filepath.Join(n.dir, "manifests"), "--hostname-override=fleet", "--backend=nft",
		"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=", "--state-dir=", "--conntrack-tcp-be-liberal", "-v=4",
	}, b.flags...)
	var err error
	if n.process, err = lab.NewProcess(lab.ProcessOptions{Name: "verdict", Namespace: n.Namespace, Dir: n.dir, Command: command}); err != nil {
		b.t.Fatal(err)
	}
	n.down = false
	b.until("Verdict serves on "+n.Name, func() error {
		_, err := n.Command("nft", "get", "element", "ip6", "verdict", "services", "{ "+vip6+" . tcp . 80 }")
		return err
	})
}

// until waits for something.
func (b *bed) until(what string, try func() error) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var err error
	for end := time.Now().Add(lab.Limit); time.Now().Before(end); <-tick.C {
		if err = try(); err == nil {
			return
		}
	}
	b.t.Fatalf("not within three minutes: %s: %v", what, err)
}

// manifests writes the Service and its endpoints, but for one.
func (n *balancer) manifests(scheduler string, without int) error {
	flags := `""`
	if scheduler == "mh" {
		flags = "mh-port"
	}
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: v1
kind: Service
metadata: {name: web, annotations: {verdict-proxy.github.io/scheduler: %s, verdict-proxy.github.io/scheduler-flags: %s}}
spec:
  clusterIPs: [10.96.0.1, "fd00:96::1"]
  ipFamilies: [IPv4, IPv6]
  externalIPs: [%s, "%s"]
  externalTrafficPolicy: Local
  ports: [{name: http, port: 80}]
`, scheduler, flags, vip4, vip6)
	for _, f := range lab.Families() {
		fmt.Fprintf(&text, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%s, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: http, port: 8080}]
endpoints:
`, strings.ToLower(f.String()), f)
		for i := range endpoints {
			if i != without {
				fmt.Fprintf(&text, "- {addresses: [%q], nodeName: fleet}\n", endpoint(f, i))
			}
		}
	}
	dir := filepath.Join(n.dir, "manifests")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = lab.WriteFile(dir, "web.yaml", []byte(text.String()))
	}
	return err
}

func (b *bed) alive() (list []*balancer) {
	for _, n := range b.balancers {
		if !n.down {
			list = append(list, n)
		}
	}
	return list
}

// route makes equal-cost routes over some balancers: the router's to the virtual addresses, and the gateway's to clients.
func (b *bed) route(over ...*balancer) {
	b.t.Helper()
	var router, gateway []string
	for f, to := range map[lab.Family]string{lab.IPv4: vip4 + "/32", lab.IPv6: vip6 + "/128"} {
		there, back := "route replace "+to, "route replace default"
		for _, n := range over {
			there += " nexthop via " + up(f, n.number, 2)
			back += " nexthop via " + below(f, n.number)
		}
		router, gateway = append(router, there), append(gateway, back)
	}
	b.ip(b.router, router...)
	b.ip(b.gateway, gateway...)
}
