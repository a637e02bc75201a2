package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestRefusedPackets sends packets that nobody may take.
func TestRefusedPackets(t *testing.T) {
	top := newTopology(t)
	// The kernel would send a host only a few ICMP errors a second.
	top.node.sysctls(t, "ipv4/icmp_ratelimit=0", "ipv6/icmp/ratelimit=0")
	e := top.node.engine(t)
	e.SetGlobals(packetGlobals())
	for _, f := range Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			mustSet(t, e, packetPorts(f, protocol)...)
		}
	}
	mustApply(t, e)
	for _, f := range Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			for _, p := range refusedProbes(f) {
				t.Run(fmt.Sprintf("%s/%s/%s/from %s", f, protocolName(protocol), p.name, p.from), func(t *testing.T) {
					t.Parallel() // those that are dropped wait
					patience := patient
					if errors.Is(p.want, errSilence) {
						patience = impatient
					}
					if p.from == "node" && protocol != tcp {
						p.want = errDenied // the node's own system call fails, whether its packet is refused or dropped
					}
					a, err := top.namespace(p.from).ask(protocol, p.source, p.to, patience)
					if !errors.Is(err, p.want) {
						t.Fatalf("%s from %s: answer %v, error %v; wanted: %v", p.to, p.source, a, err, p.want)
					}
				})
			}
		}
	}
}

type refusedProbe struct {
	name, from string
	source     netip.Addr
	to         netip.AddrPort
	want       error
}

func refusedProbes(f Family) []refusedProbe {
	at := netip.AddrPortFrom
	var out []refusedProbe
	add := func(name, from string, to netip.AddrPort, want error) {
		out = append(out, refusedProbe{name, from, netip.Addr{}, to, want})
	}
	for _, from := range []string{"client", "node", "pod-a"} {
		add("cluster IP without endpoints", from, at(serviceIP(f, 6), 80), errRefused)
		add("external IP without endpoints", from, at(externalIP(f, 6), 80), errRefused)
		add("node port without endpoints", from, at(nodeAddr(f), 30006), errRefused)
		add("unused port of a cluster IP", from, at(serviceIP(f, 1), 81), errRefused)
		add("cluster IP with none local", from, at(serviceIP(f, 7), 80), errSilence)
		add("address in the service range that no Service has", from, at(serviceIP(f, 99), 80), errSilence)
		if from != "client" {
			add("load balancer with ranges that leave it out", from, at(externalIP(f, 4), 80), errSilence)
		}
	}
	add("external IP with none local", "client", at(externalIP(f, 7), 80), errSilence)
	add("node port with none local", "client", at(nodeAddr(f), 30007), errSilence)
	out = append(out, refusedProbe{"load balancer with ranges that leave it out", "client",
		oneOfManyClients(f, 1), at(externalIP(f, 4), 80), errSilence})
	return out
}

// TestRefusedAtOnce connects 20 times to a service port without endpoints. An ICMP error, which the kernel
// rate-limits, would let most of them wait for a second SYN, a second later.
func TestRefusedAtOnce(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	for _, f := range Families() {
		mustSet(t, e, packetPorts(f, tcp)...)
	}
	mustApply(t, e)
	for _, f := range Families() {
		for _, from := range []string{"client", "node", "pod-a"} {
			var took []time.Duration
			for range 20 {
				start := time.Now()
				_, err := top.namespace(from).ask(tcp, netip.Addr{}, netip.AddrPortFrom(serviceIP(f, 6), 80), patient)
				took = append(took, time.Since(start))
				if !errors.Is(err, errRefused) {
					t.Fatalf("%s from %s: %v; wanted: refused", f, from, err)
				}
			}
			slices.Sort(took)
			t.Logf("%s from %s: slowest of 20 refusals %v", f, from, took[19])
			if took[19] > 900*time.Millisecond {
				t.Errorf("%s from %s: a refusal took %v: its SYN was sent twice", f, from, took[19])
			}
		}
	}
}

// TestRemovedWhileUsed removes an endpoint, then all, under a client: no connection is lost before, all are refused
// after.
func TestRemovedWhileUsed(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	port := packetPorts(IPv4, tcp)[0]
	to := netip.AddrPortFrom(port.Frontends[0].Addr, 80)
	for _, pods := range [][]string{podNames[:], podNames[1:], podNames[2:], podNames[:1]} {
		port.Cluster = podEndpoints(IPv4, pods...)
		mustSet(t, e, port)
		mustApply(t, e)
		top.checkServed(t, IPv4, tcp, probe{from: "client", to: to, pods: pods})
	}
	port.Cluster, port.Frontends = nil, []Frontend{refused(port.Frontends[0], Reject)}
	mustSet(t, e, port)
	mustApply(t, e)
	if _, err := top.client.ask(tcp, netip.Addr{}, to, patient); !errors.Is(err, errRefused) {
		t.Fatalf("without endpoints: %v; wanted: refused", err)
	}
	e.Delete(IPv4, port.Name)
	mustApply(t, e)
	if a, err := top.client.ask(tcp, netip.Addr{}, to, impatient); err == nil {
		t.Fatalf("deleted service: answer %v", a)
	}
}
