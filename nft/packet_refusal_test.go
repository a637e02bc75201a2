//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestRefusedPackets sends packets that must be refused or dropped.
func TestRefusedPackets(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	e.SetGlobals(packetGlobals())
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			mustSet(t, e, packetPorts(f, protocol)...)
		}
	}
	mustApply(t, e)
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			for _, p := range refusedProbes(f) {
				t.Run(fmt.Sprintf("%s/%s/%s/from %s", f, protocolName(protocol), p.name, p.from), func(t *testing.T) {
					if protocol != sctp { // a raw socket gets each refusal that comes from an address, whatever its port
						t.Parallel() // a client waits when its packets are dropped
					}
					q := question(protocol, p.to)
					q.From = p.source
					if p.want == lab.Dropped {
						q.Patience = impatient
					}
					top.expectOutcome(t, p.from, q, p.want)
				})
			}
		}
	}
}

type refusedProbe struct {
	name, from string
	source     netip.Addr
	to         netip.AddrPort
	want       lab.Outcome
}

func refusedProbes(f program.Family) []refusedProbe {
	at := netip.AddrPortFrom
	var out []refusedProbe
	add := func(name, from string, to netip.AddrPort, want lab.Outcome) {
		out = append(out, refusedProbe{name, from, netip.Addr{}, to, want})
	}
	for _, from := range senders() {
		add("cluster IP without endpoints", from, at(serviceIP(f, 6), 80), lab.Refused)
		add("external IP without endpoints", from, at(externalIP(f, 6), 80), lab.Refused)
		add("node port without endpoints", from, at(nodeAddr(f), 30006), lab.Refused)
		add("unused port of a cluster IP", from, at(serviceIP(f, 1), 81), lab.Refused)
		add("cluster IP with none local", from, at(serviceIP(f, 7), 80), lab.Dropped)
		add("address in the service range that no Service has", from, at(serviceIP(f, 99), 80), lab.Dropped)
		if from != lab.Outside {
			add("load balancer with ranges that leave it out", from, at(externalIP(f, 4), 80), lab.Dropped)
		}
	}
	add("external IP with none local", lab.Outside, at(externalIP(f, 7), 80), lab.Dropped)
	add("node port with none local", lab.Outside, at(nodeAddr(f), 30007), lab.Dropped)
	out = append(out, refusedProbe{"load balancer with ranges that leave it out", lab.Outside,
		oneOfManyClients(f, 1), at(externalIP(f, 4), 80), lab.Dropped})
	return out
}

// TestTranslatedByOthers: another table translates connections before Verdict looks at them. Those to a cluster IP are refused, and those
// to an address in the service range that no Service has are dropped, as if nobody had translated them.
func TestTranslatedByOthers(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	globals := packetGlobals()
	globals.ServiceCIDRs = append(globals.ServiceCIDRs, prefixes("192.0.2.5/32", "2001:db8::5/128")...) // a load balancer IP
	e.SetGlobals(globals)
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			mustSet(t, e, packetPorts(f, protocol)...)
		}
		rules := fmt.Sprintf("%[1]s daddr %[2]s dnat to %[3]s; %[1]s daddr %[4]s dnat to %[5]s; %[1]s daddr %[6]s dnat to %[7]s; %[1]s daddr %[8]s dnat to %[9]s",
			f, externalIP(f, 101), serviceIP(f, 1), externalIP(f, 102), serviceIP(f, 99), externalIP(f, 103), podIP(f, "b"), externalIP(f, 104), externalIP(f, 5))
		top.node.load(t, fmt.Sprintf(`table %s foreign {
			chain in { type nat hook prerouting priority -101; %[2]s; }
			chain out { type nat hook output priority -101; %[2]s; }
		}`, f, rules))
	}
	mustApply(t, e)
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			for _, from := range senders() {
				for n, want := range map[byte]lab.Outcome{101: lab.Refused, 102: lab.Dropped, 103: lab.Answered, 104: lab.Unreachable} {
					if n == 104 && from == lab.Outside {
						continue // the way back to where the load balancer IP may be is the client itself
					}
					q := question(protocol, netip.AddrPortFrom(externalIP(f, n), firstPodPort))
					if want == lab.Dropped {
						q.Patience = impatient
					}
					top.expectOutcome(t, from, q, want)
				}
			}
		}
	}
}

// TestRefusedAtOnce connects 20 times to a service port without endpoints. The kernel limits the rate of ICMP errors:
// if the refusal were one, most clients would repeat their SYN, a second later.
func TestRefusedAtOnce(t *testing.T) {
	top := newTopology(t)
	if err := top.Node.LimitICMP(true); err != nil {
		t.Fatal(err)
	}
	e := top.node.engine(t)
	for _, f := range program.Families() {
		mustSet(t, e, packetPorts(f, tcp)...)
	}
	mustApply(t, e)
	for _, f := range program.Families() {
		for _, from := range senders() {
			before := top.repeatedSYNs(t, from)
			for range 20 {
				r := top.At(t, from).Ask(question(tcp, netip.AddrPortFrom(serviceIP(f, 6), 80)))
				if r.Outcome != lab.Refused {
					t.Fatalf("%s from %s: %s; wanted: refused", f, from, r)
				}
			}
			if n := top.repeatedSYNs(t, from) - before; n > 0 {
				t.Errorf("%s from %s: %d SYNs of 20 clients were sent again", f, from, n)
			}
		}
	}
}

// repeatedSYNs is how many SYNs a place has sent again, in both families.
func (top *topology) repeatedSYNs(t *testing.T, place string) (n int) {
	t.Helper()
	top.At(t, place).MustDo(t, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		lines := strings.Split(string(text), "\n") // names and values of TcpExt
		n, err = strconv.Atoi(strings.Fields(lines[1])[slices.Index(strings.Fields(lines[0]), "TCPSynRetrans")])
		return err
	})
	return n
}

// TestRemovedWhileUsed removes an endpoint, then all, under a client: no connection is lost before, all are refused
// after.
func TestRemovedWhileUsed(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	port := packetPorts(program.IPv4, tcp)[0]
	to := netip.AddrPortFrom(port.Frontends[0].Addr, 80)
	for _, pods := range [][]string{podNames[:], podNames[1:], podNames[2:], podNames[:1]} {
		port.Cluster = podEndpoints(program.IPv4, pods...)
		mustSet(t, e, port)
		mustApply(t, e)
		top.checkServed(t, program.IPv4, tcp, probe{from: lab.Outside, to: to, pods: pods})
	}
	port.Cluster, port.Frontends = nil, []contents.Frontend{refused(port.Frontends[0], program.Reject)}
	mustSet(t, e, port)
	mustApply(t, e)
	top.expectOutcome(t, lab.Outside, question(tcp, to), lab.Refused)
	e.Delete(program.IPv4, port.Name)
	mustApply(t, e)
	// Verdict does not know the address any more: the packet leaves through the gateway, which answers.
	top.expectOutcome(t, lab.Outside, question(tcp, to), lab.Unreachable)
}
