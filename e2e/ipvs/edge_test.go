//go:build ipvs

package ipvs

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestEdge: packets to addresses of Services that IPVS serves, which no port takes, which another table has translated, or which belong
// to no flow.
func TestEdge(t *testing.T) {
	alone := "--load-balancer-cidrs=$LB2_HOST,$OTHER_LB2_HOST,$EXT1_HOST,$OTHER_EXT1_HOST"
	each(t, []test{{"edge", append([]string{alone}, ipvs()...), edge}, {"no route", ipvs(), withoutRoute}})
}

// withoutRoute: without a default route, the node itself reaches cluster IPs, which are local. The check misses a route only where nft
// may serve them.
func withoutRoute(b *bed) {
	b.serve("", "ports: [{port: 80}]")
	b.settled("endpoints web b")
	family := map[lab.Family]string{lab.IPv4: "-4", lab.IPv6: "-6"}[b.family]
	b.node("ip", family, "route", "delete", "default")
	defer b.node("ip", family, "route", "add", "default", "via", b.address("GATEWAY").String())
	lab.Eventually(b, "the node reaches the Service", func() error {
		if got := b.place(lab.Node).Ask(b.at(80)); got.Outcome != lab.Answered {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	for flag, missing := range map[string]bool{"--backend=ipvs": false, "--backend=hybrid": true, "--ipvs-exclude-cidrs=192.0.2.0/24": true} {
		args := []string{"check", "--manifests=" + b.TempDir(), "--backend=ipvs", flag}
		out, err := b.World().Node.Command(verdict().Binary, args...)
		if !strings.Contains(out, "IPVS") || strings.Contains(out, "route to") != missing {
			b.Errorf("%s: %v\n%s", flag, err, out)
		}
	}
}

// outcome asks over each protocol.
func (b *bed) outcome(from string, to netip.Addr, port uint16, want lab.Outcome) {
	b.Helper()
	for _, p := range []lab.Protocol{lab.TCP, lab.UDP, lab.SCTP} {
		q := lab.Question{Protocol: p, To: netip.AddrPortFrom(to, port), Patience: patience}
		if got := b.place(from).Ask(q); got.Outcome != want {
			b.Errorf("from %s, %s: %s, want %s", from, q, got, want)
		}
	}
}

func edge(b *bed) {
	early := []lab.Question{}
	for _, p := range []lab.Protocol{lab.TCP, lab.SCTP} {
		q := lab.Question{Protocol: p, To: netip.AddrPortFrom(b.address("NOWHERE"), 80), Ports: lab.PortRange{Low: 20001, High: 20001}, Patience: patience}
		if early = append(early, q); b.place("a").Ask(q).Outcome != lab.Unreachable {
			b.Errorf("%s, before the Service, is not unreachable", q)
		}
	}
	const ports = "[{name: t, port: 80}, {name: u, protocol: UDP, port: 80}, {name: s, protocol: SCTP, port: 80}]"
	b.settled(`
apply
    kind: Service
    metadata: {name: web}
    spec: {type: LoadBalancer, clusterIPs: ["VIP"], externalIPs: [$NOWHERE], ports: ` + ports + `}
    status: {loadBalancer: {ingress: [{ip: $LB1}, {ip: $LB2}]}}
    ---
    kind: Service
    metadata: {name: closed}
    spec: {type: LoadBalancer, clusterIPs: [$VIP2], loadBalancerSourceRanges: [office], ports: ` + ports + `}
    status: {loadBalancer: {ingress: [{ip: $LB3}]}}
    ---
    kind: Service
    metadata: {name: near}
    spec: {type: LoadBalancer, clusterIPs: [$VIP5], loadBalancerSourceRanges: [$NODE_HOST], ports: ` + ports + `}
    status: {loadBalancer: {ingress: [{ip: $EXTRA_VIP}]}}
    ---
    kind: Service
    metadata: {name: misplaced}
    spec: {clusterIPs: [$VIP3], ports: ` + ports + `}
    ---
    kind: EndpointSlice
    metadata: {name: misplaced-1, labels: {kubernetes.io/service-name: misplaced}}
    addressType: $FAMILY
    ports: [{name: t, port: 8080}, {name: u, protocol: UDP, port: 8080}, {name: s, protocol: SCTP, port: 8080}]
    endpoints: [{addresses: [$VIP2], nodeName: node-1}, {addresses: [$UNALLOCATED], nodeName: node-1}]
endpoints web b
endpoints closed b
endpoints near b
`)
	lab.Must(b, b.World().Node.Load(fmt.Sprintf(`table %[1]s other {
		chain in {
			type nat hook prerouting priority -101
			%[1]s daddr %[2]s dnat to %[3]s
			%[1]s daddr %[4]s dnat to %[5]s
		}
	}`, map[lab.Family]string{lab.IPv4: "ip", lab.IPv6: "ip6"}[b.family], b.address("EXT2"), b.vip, b.address("SPARE"), b.address("UNALLOCATED"))))
	for _, from := range []string{"a", lab.Outside, lab.Node} {
		b.outcome(from, b.vip, 80, lab.Answered)
		b.outcome(from, b.vip, 81, lab.Refused)
		b.outcome(from, b.address("LB1"), 81, lab.Refused)
		b.outcome(from, b.address("LB2"), 81, lab.Refused)
		b.outcome(from, b.address("EXT1"), 80, lab.Dropped)
		b.outcome(from, b.address("LB3"), 80, lab.Dropped)
		b.outcome(from, b.address("VIP3"), 80, lab.Refused)
		if from != lab.Node {
			b.outcome(from, b.address("EXT2"), 80, lab.Answered) // IPVS serves what another table translates to a cluster IP
			b.outcome(from, b.address("EXT2"), 81, lab.Refused)
			b.outcome(from, b.address("SPARE"), 80, lab.Dropped)
		}
	}
	b.outcome(lab.Node, b.address("EXTRA_VIP"), 80, lab.Answered) // from the one address of the node that the source ranges have
	for _, q := range early {
		lab.Eventually(b, "the client that came before the Service", func() error {
			if got := b.place("a").Ask(q); got.Outcome != lab.Answered {
				return fmt.Errorf("%s: %s", q, got)
			}
			return nil
		})
	}
	b.node("nft", "delete", "table", map[lab.Family]string{lab.IPv4: "ip", lab.IPv6: "ip6"}[b.family], "other")
	outsideOfWindow(b)
}

// outsideOfWindow: IPVS translates segments of its connections by itself, also those that connection tracking calls invalid.
func outsideOfWindow(b *bed) {
	ends := make(chan net.Conn)
	b.place("b").MustDo(b, func() error {
		l, err := net.Listen("tcp", ":9300")
		if err == nil {
			b.Cleanup(func() { l.Close() })
			go func() {
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					ends <- c
				}
			}()
		}
		return err
	})
	b.settled("apply\n    kind: Service\n    metadata: {name: plain}\n    spec: {clusterIPs: [$VIP4], ports: [{port: 80}]}\nendpoints plain b:9300")
	var client net.Conn
	lab.Eventually(b, "the Service is served", func() (err error) {
		client, err = b.place("a").DialContext(b.Context(), "tcp", lab.AddressPort(b.family, "VIP4", 80).String())
		return err
	})
	end := <-ends
	b.place("b").MustDo(b, func() error { return lab.SendOutsideOfWindow(end.(*net.TCPConn)) })
	for range 3 {
		for _, x := range [][2]net.Conn{{end, client}, {client, end}} {
			_, err := x[0].Write([]byte("x"))
			lab.Must(b, err, x[1].SetReadDeadline(time.Now().Add(time.Minute)))
			_, err = io.ReadFull(x[1], make([]byte, 1))
			lab.Must(b, err)
		}
	}
	_, _ = client.Close(), end.Close()
}
