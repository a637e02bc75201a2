//go:build ipvs

package ipvs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
)

// The network of TestForwarding is one layer-2 network. The client reaches the addresses of the Service in it (IPv4), or
// through the balancer (IPv6). The addresses are those of ipvsctl/README.md, whose commands prepare the real servers.
const (
	clientHost, balancerHost = 1, 2
	firstServer              = 11
)

// realServers are the names of the real servers. The first one has the address that ipvsctl/README.md gives it.
func realServers() []string { return []string{"one", "two"} }

func virtual(f lab.Family) netip.Addr {
	return netip.MustParseAddr(map[lab.Family]string{lab.IPv4: "203.0.113.1", lab.IPv6: "2001:db8::1"}[f])
}

func host(f lab.Family, n int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(map[lab.Family]string{lab.IPv4: "192.0.2.%d", lab.IPv6: "2001:db8:1::%d"}[f], n))
}

// forwarding is the network with verdict on the balancer.
type forwarding struct {
	*testing.T
	lan              *netns.Namespace
	client, balancer *lab.Namespace
	servers          map[string]*lab.Namespace
	dir              string
}

func newForwarding(t *testing.T) *forwarding {
	n := &forwarding{T: t, servers: map[string]*lab.Namespace{}, dir: t.TempDir()}
	n.lan = netns.New(t)
	n.must(n.lan.Bridge("lan"))
	n.client, n.balancer = n.join("client", clientHost), n.join("balancer", balancerHost)
	n.must(n.client.AddRoute(netns.Route{To: netip.PrefixFrom(virtual(lab.IPv4), 32), Link: "eth0"}))
	n.must(n.client.AddRoute(netns.Route{To: netip.PrefixFrom(virtual(lab.IPv6), 128), Gateway: host(lab.IPv6, balancerHost)}))
	// Answers that pass the balancer are counted.
	n.must(n.balancer.Load(`table inet test {
		counter answers { }
		chain passing { type filter hook prerouting priority -500; ip saddr 203.0.113.1 counter name answers; ip6 saddr 2001:db8::1 counter name answers; }
	}`))
	for i, name := range realServers() {
		n.servers[name] = n.join(name, firstServer+i)
		n.prepare(name, firstServer+i)
	}
	return n
}

// join adds a host to the network.
func (n *forwarding) join(name string, number int) *lab.Namespace {
	n.Helper()
	ns := &lab.Namespace{Namespace: netns.New(n.T)}
	n.must(ns.Quiet())
	n.must(ns.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"))
	n.must(netns.Connect(n.lan, name, ns.Namespace, "eth0"))
	n.must(n.lan.AddPort("lan", name))
	for f, bits := range map[lab.Family]int{lab.IPv4: 24, lab.IPv6: 64} {
		n.must(ns.AddAddress("eth0", netip.PrefixFrom(host(f, number), bits)))
	}
	return ns
}

func (n *forwarding) must(err error) {
	n.Helper()
	lab.Must(n, err)
}

// prepare runs the commands of ipvsctl/README.md on a real server and has it serve.
func (n *forwarding) prepare(name string, number int) {
	n.Helper()
	ns := n.servers[name]
	n.must(ns.Sysctl("net.ipv4.conf.all.rp_filter=1")) // as many distributions have it
	for _, f := range lab.Families() {
		all := map[lab.Family]string{lab.IPv4: "0.0.0.0/0", lab.IPv6: "::/0"}[f]
		n.must(ns.AddRoute(netns.Route{To: netip.MustParsePrefix(all), Link: "eth0", Gateway: host(f, clientHost)}))
	}
	text := "PATH=/run/bin:$PATH\n" + commandsOfReadme(n.T)
	text = strings.NewReplacer(fmt.Sprint(host(lab.IPv4, firstServer)), fmt.Sprint(host(lab.IPv4, number)),
		fmt.Sprint(host(lab.IPv6, firstServer)), fmt.Sprint(host(lab.IPv6, number))).Replace(text)
	check := []string{"check", "--real-server", fmt.Sprintf("%s,%s", virtual(lab.IPv4), virtual(lab.IPv6))}
	if out, err := ns.Command(verdict().Binary, check...); err == nil {
		n.Fatalf("%s is no real server yet, but verdict check says:\n%s", name, out)
	}
	var segments, others strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, "advmss") {
			segments.WriteString(line)
		} else {
			others.WriteString(line)
		}
	}
	ns.Must(n.T, others.String(), "sh", "-ex")
	if out := ns.Must(n.T, "", verdict().Binary, check...); strings.Count(out, "segments that do not fit into a tunnel") != 2 {
		n.Errorf("%s announces segments that are too large, but verdict check says:\n%s", name, out)
	}
	ns.Must(n.T, segments.String(), "sh", "-ex")
	if out := ns.Must(n.T, "", verdict().Binary, check...); strings.Contains(out, "error") || strings.Contains(out, "->") || !strings.Contains(out, "ip6gre, up") {
		n.Errorf("%s has run the commands, but verdict check says:\n%s", name, out)
	}
	for _, f := range lab.Families() {
		n.serve(name, netip.AddrPortFrom(virtual(f), 80))
		n.serve(name, netip.AddrPortFrom(host(f, number), 80))
		n.serve(name, netip.AddrPortFrom(host(f, number), 8080))
	}
}

// commandsOfReadme are the commands that prepare a real server.
func commandsOfReadme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../ipvsctl/README.md")
	lab.Must(t, err)
	_, section, _ := strings.Cut(string(text), "\n### The real server\n")
	section, _, _ = strings.Cut(section, "\n## ")
	lines := regexp.MustCompile(`(?m)^    (.*)$`).FindAllStringSubmatch(section, -1)
	if len(lines) < 10 {
		t.Fatalf("ipvsctl/README.md has %d commands for real servers", len(lines))
	}
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&out, l[1])
	}
	return out.String()
}

// serve answers under a name at an address, over TCP and UDP, until the test ends.
func (n *forwarding) serve(name string, at netip.AddrPort) {
	n.Helper()
	n.servers[name].MustDo(n.T, func() error {
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		n.Cleanup(func() { listener.Close(); socket.Close() })
		go lab.Accept(listener, name, at.Port())
		go lab.Reply(socket, name, at.Port())
		return err
	})
}

// run starts verdict on a balancer.
func (n *forwarding) run(name string, balancer *lab.Namespace, flags ...string) *lab.Process {
	n.Helper()
	p, err := lab.NewProcess(lab.ProcessOptions{
		Name: name, Namespace: balancer, Dir: n.dir,
		Command: append([]string{verdict().Binary, "run", "--manifests", filepath.Join(n.dir, "manifests"), "--hostname-override=balancer", anyExternal,
			"--ipvs-scheduler=rr", "--ipvs-graceful-period=0s", "--healthz-bind-address=", "--metrics-bind-address=", "--masquerade-all"}, flags...),
	})
	n.must(err)
	n.Cleanup(func() {
		if err := p.Stop(); err != nil || n.Failed() {
			n.Errorf("%s ended: %v; the end of its log:\n%s", name, err, p.Log(40))
		}
	})
	return p
}

// write writes the Service with its forwarding, and the real servers that it has.
func (n *forwarding) write(forwarding string, port uint16, names ...string) {
	n.Helper()
	var out strings.Builder
	fmt.Fprintf(&out, `{apiVersion: v1, kind: Service, metadata: {name: web, annotations: {verdict-proxy.github.io/forwarding: "%s"}},
spec: {clusterIPs: ["10.96.0.1", "fd96::1"], externalIPs: ["%s", "%s"], ports: [
  {name: tcp, port: 80}, {name: udp, protocol: UDP, port: 80}]}}
`, forwarding, virtual(lab.IPv4), virtual(lab.IPv6))
	for _, f := range lab.Families() {
		fmt.Fprintf(&out, "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-%s, labels: {kubernetes.io/service-name: web}},\n"+
			"addressType: %s, ports: [{name: tcp, port: %d}, {name: udp, protocol: UDP, port: %d}], endpoints: [", strings.ToLower(f.String()), f, port, port)
		for i, name := range realServers() {
			if strings.Contains(strings.Join(names, " "), name) {
				fmt.Fprintf(&out, `{addresses: ["%s"]},`, host(f, firstServer+i))
			}
		}
		out.WriteString("]}\n")
	}
	dir := filepath.Join(n.dir, "manifests")
	n.must(errors.Join(os.MkdirAll(dir, 0o755), lab.WriteFile(dir, "web.yaml", []byte(out.String()))))
}

// until waits until the virtual servers at the Service's external addresses, over TCP and UDP, have these real servers and no
// others.
func (n *forwarding) until(options string, port uint16, names ...string) {
	n.Helper()
	has := func() bool {
		text := n.balancer.Must(n.T, "", "ipvsadm", "-Sn")
		for _, f := range lab.Families() {
			for i, name := range realServers() {
				line := fmt.Sprintf("%s -r %s %s", netip.AddrPortFrom(virtual(f), 80), netip.AddrPortFrom(host(f, firstServer+i), port), options)
				wanted := strings.Contains(strings.Join(names, " "), name)
				if strings.Count(text, line) != map[bool]int{true: 2, false: 0}[wanted] {
					return false
				}
			}
		}
		return true
	}
	n.eventually(fmt.Sprintf("no %q with %s", options, names), has)
}

// asks asks the Service from a place several times, and expects answers of these real servers to that source.
func (n *forwarding) asks(from *lab.Namespace, f lab.Family, p lab.Protocol, source netip.Addr, names ...string) {
	n.Helper()
	got := map[string]bool{}
	for range 4 {
		a := from.Once(n.T, lab.Question{Protocol: p, To: netip.AddrPortFrom(virtual(f), 80), Patience: patience})
		if got[a.Pod] = true; a.Source != source {
			n.Errorf("%s over %s: %s saw the source %s, want %s", f, p, a.Pod, a.Source, source)
		}
	}
	if len(got) != len(names) || !got[names[0]] {
		n.Errorf("%s over %s: answers of %v, want %v", f, p, got, names)
	}
}

// answers counts packets that came from the Service's addresses to the balancer.
func (n *forwarding) answers() string {
	n.Helper()
	text := n.balancer.Must(n.T, "", "nft", "list", "counter", "inet", "test", "answers")
	return regexp.MustCompile(`packets \d+`).FindString(text)
}

// unpacked counts what a tunnel device of a real server has unpacked.
func (n *forwarding) unpacked(name, device string) int {
	n.Helper()
	text := n.servers[name].Must(n.T, "", "sh", "-c", "ip -s -o link show "+device+" | sed 's/.*RX:[^\\\\]*\\\\ *[0-9]* *\\([0-9]*\\).*/\\1/'")
	packets, err := strconv.Atoi(strings.TrimSpace(text))
	n.must(err)
	return packets
}

// long sends lines that fill many packets, and waits for the answer to each.
func (n *forwarding) long(f lab.Family) {
	n.Helper()
	ctx, stop := context.WithTimeout(n.Context(), 30*time.Second)
	defer stop()
	conn, err := n.client.DialContext(ctx, "tcp", netip.AddrPortFrom(virtual(f), 80).String())
	n.must(err)
	defer conn.Close()
	n.must(conn.SetDeadline(time.Now().Add(30 * time.Second)))
	answers := bufio.NewReader(conn)
	for range 3 {
		_, err = answers.ReadString('\n')
		n.must(err)
		_, err = conn.Write([]byte(strings.Repeat("x", 50_000) + "\n"))
		n.must(err)
	}
	_, err = answers.ReadString('\n')
	n.must(err)
}

// TestForwarding: packets reach real servers by route and through each tunnel, with the client's address, and answers go past
// the balancer.
func TestForwarding(t *testing.T) {
	n := newForwarding(t)
	n.write("route", 80, "one", "two")
	process := n.run("verdict", n.balancer)
	for _, tt := range []struct{ forwarding, options, device string }{
		{"route", "-g -w 1\n", ""},
		{"tunnel", "-i -w 1 --tun-type ipip\n", "ipip"},
		{"tunnel,gue,csum", "-i -w 1 --tun-type gue --tun-port 6080 --tun-csum\n", "ipip"},
		{"tunnel,gre", "-i -w 1 --tun-type gre --tun-nocsum\n", "gre"},
	} {
		t.Run(tt.forwarding, func(t *testing.T) {
			inner := *n
			inner.T = t
			inner.carries(tt.forwarding, tt.options, tt.device)
		})
	}
	t.Run("another port", func(t *testing.T) {
		inner := *n
		inner.T = t
		inner.anotherPort(process)
	})
}

func (n *forwarding) carries(forwarding, options, device string) {
	n.write(forwarding, 80, "one", "two")
	n.until(options, 80, "one", "two")
	before := n.answers()
	for _, f := range lab.Families() {
		name := device + map[lab.Family]string{lab.IPv4: "4", lab.IPv6: "6"}[f]
		count := 0
		if device != "" {
			count = n.unpacked("one", name)
		}
		for _, p := range []lab.Protocol{lab.TCP, lab.UDP} {
			n.asks(n.client, f, p, host(f, clientHost), "one", "two")
		}
		n.long(f)
		if device != "" && n.unpacked("one", name) == count {
			n.Errorf("%s: nothing came through the tunnel %s", f, name)
		}
	}
	held, a := n.client.Hold(n.T, lab.Question{Protocol: lab.TCP, To: netip.AddrPortFrom(virtual(lab.IPv4), 80), Patience: patience})
	other := map[string]string{"one": "two", "two": "one"}[a.Pod]
	n.write(forwarding, 80, a.Pod)
	n.until(options, 80, a.Pod)
	for _, f := range lab.Families() {
		n.asks(n.client, f, lab.TCP, host(f, clientHost), a.Pod)
	}
	if r := held.Send(patience); r.Outcome != lab.Answered {
		n.Errorf("an open connection after %s was removed: %s", other, r)
	}
	if after := n.answers(); after != before || after == "" {
		n.Errorf("answers passed the balancer: %s before, %s after", before, after)
	}
	// The balancer itself is served with NAT.
	for _, f := range lab.Families() {
		n.asks(n.balancer, f, lab.TCP, host(f, balancerHost), a.Pod)
	}
}

// anotherPort: where only NAT can forward, it does, and the log says why.
func (n *forwarding) anotherPort(p *lab.Process) {
	n.write("route", 8080, "one")
	n.until("", 80)
	for _, f := range lab.Families() {
		n.asks(n.client, f, lab.TCP, host(f, balancerHost), "one")
	}
	if text := p.Log(200); !strings.Contains(text, "does not have the port of the Service, 80, which packets keep; NAT forwards") {
		n.Errorf("the log does not say why NAT forwards:\n%s", text)
	}
}
