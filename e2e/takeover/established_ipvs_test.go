//go:build ipvs

package takeover

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// BenchmarkEstablished counts the instructions of a packet of an established flow, from the client's system call to the endpoint's
// firewall, through a node with different rules. Under QEMU's -icount, a nanosecond of the guest is one instruction.
func BenchmarkEstablished(b *testing.B) {
	for b.Loop() {
		n := newBed(b)
		n.At(b, lab.Outside).Must(b, "", "ip", "route", "replace", lab.MustText(lab.IPv4, "PODS"), "via", lab.MustText(lab.IPv4, "NODE"))
		n.At(b, lab.Outside).Must(b, "", "ip", "-6", "route", "replace", lab.MustText(lab.IPv6, "PODS"), "via", lab.MustText(lab.IPv6, "NODE"))
		table := &measure.Table{Head: []string{"rules of the node"}}
		for _, p := range paths() {
			table.Head = append(table.Head, p.String())
		}
		n.instructions(b, table, "none", direct)
		n.Node.Must(b, "table inet t { chain f { type filter hook forward priority 0; ct state new accept; }; }", "nft", "-f", "-")
		n.instructions(b, table, "connection tracking, and one test for new connections", direct)
		n.Node.Must(b, "delete table inet t\n"+oneRule(), "nft", "-f", "-")
		n.instructions(b, table, "one DNAT rule, and one that masquerades", path.frontend)
		n.Node.Must(b, "delete table inet t", "nft", "-f", "-")
		upstream := n.kubeProxy(b, &mode{proxyMode: "nftables"})
		n.instructions(b, table, "kube-proxy, nftables", path.frontend)
		stop(b, upstream)
		verdict := n.verdict(b, &mode{}, 0)
		n.instructions(b, table, "Verdict", path.frontend)
		stop(b, verdict)
		for _, family := range []string{"ip", "ip6"} {
			n.Node.Must(b, fmt.Sprintf("flush chain %s verdict filter-forward; delete chain %[1]s verdict filter-forward", family), "nft", "-f", "-")
		}
		n.instructions(b, table, "Verdict, without filter-forward", path.frontend)
		fmt.Print(table)
	}
}

// path is a way of packets through the node.
type path struct {
	family lab.Family
	place  string // of the client
	name   string // of the frontend's address
	port   uint16
}

func paths() (list []path) {
	for _, f := range lab.Families() {
		list = append(list, path{f, "b", "VIP1", servicePort}, path{f, lab.Outside, "NODE", nodePort})
	}
	return list
}

func (p path) String() string {
	if p.name == "NODE" {
		return fmt.Sprintf("%s, from outside to a node port", p.family)
	}
	return fmt.Sprintf("%s, from pod to pod through a cluster IP", p.family)
}

func (p path) frontend() netip.AddrPort { return lab.AddressPort(p.family, p.name, p.port) }

// direct is the endpoint itself.
func direct(p path) netip.AddrPort { return lab.AddressPort(p.family, "A", targetPort) }

// oneRule translates to the endpoint as somebody would write it by hand.
func oneRule() string {
	var out strings.Builder
	out.WriteString("table inet t {\nchain d { type nat hook prerouting priority -100;\n")
	for _, p := range paths() {
		family := map[lab.Family]string{lab.IPv4: "ip", lab.IPv6: "ip6"}[p.family]
		fmt.Fprintf(&out, "%s daddr %s udp dport %d dnat to %s\n", family, p.frontend().Addr(), p.port, direct(p))
	}
	fmt.Fprintf(&out, "}\nchain m { type nat hook postrouting priority 100; iifname %q ct status dnat masquerade; }\n}\n", lab.OutsideLink)
	return out.String()
}

// instructions adds a row: the least of several bursts, for each path.
func (b *bed) instructions(t testing.TB, table *measure.Table, rules string, to func(path) netip.AddrPort) {
	t.Helper()
	row := []string{rules}
	for _, p := range paths() {
		row = append(row, measure.Count(b.burst(t, p, to(p))))
	}
	table.Add(row...)
	t.Log(strings.Join(row, " | "))
}

const quiet = `table inet quiet { chain in { type filter hook prerouting priority -400; udp dport 8080 drop; }; }`

// burst opens a flow to pod a, lets the pod drop what comes then, and returns the instructions of a packet.
func (b *bed) burst(t testing.TB, p path, to netip.AddrPort) int {
	t.Helper()
	flow := b.flow(t, p, to, 2) // the second packet finds an established flow
	defer func() { _ = flow.Close() }()
	return b.packets(t, flow, b.At(t, "a"), quiet)
}

// packets returns the instructions of a packet of a flow, while a place drops its packets.
func (b *bed) packets(t testing.TB, flow net.Conn, place *lab.Namespace, rules string) int {
	t.Helper()
	return int(b.bursts(t, flow, place, rules)[0]) / packetsOfBurst
}

const packetsOfBurst = 200

// bursts returns how long each of several bursts takes, the shortest first, while a place drops the packets.
func (b *bed) bursts(t testing.TB, flow net.Conn, place *lab.Namespace, rules string) (took []time.Duration) {
	t.Helper()
	place.Must(t, rules, "nft", "-f", "-")
	for range 40 {
		began := time.Now()
		for range packetsOfBurst {
			_, err := flow.Write([]byte("?\n"))
			lab.Must(t, err)
		}
		took = append(took, time.Since(began))
	}
	place.Must(t, "", "nft", "delete", "table", "inet", "quiet")
	slices.Sort(took)
	return took
}

// flow opens a UDP flow to pod a, with so many questions and answers.
func (b *bed) flow(t testing.TB, p path, to netip.AddrPort, questions int) net.Conn {
	t.Helper()
	for {
		c, err := b.At(t, p.place).DialContext(t.Context(), "udp", to.String())
		lab.Must(t, err, c.SetDeadline(time.Now().Add(patience)))
		answer := make([]byte, 1000)
		var a lab.Answer
		for range questions {
			_, err = c.Write([]byte("?\n"))
			n, errRead := c.Read(answer)
			lab.Must(t, err, errRead, json.Unmarshal(answer[:n], &a))
		}
		if a.Pod == "a" {
			return c
		}
		lab.Must(t, c.Close())
	}
}
