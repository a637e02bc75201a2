//go:build !nokernel

package nft

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// topology is a world of package lab with an engine's namespace as its node. Connections come from x (a client
// outside), from the node, and from pod a.
type topology struct {
	*lab.World
	node *namespace
}

func newTopology(t testing.TB) *topology {
	t.Helper()
	w := lab.New(t)
	return &topology{World: w, node: &namespace{w.Node.Namespace}}
}

// startOver removes all tables and flows, as in a topology that has just been made.
func (top *topology) startOver(t testing.TB) {
	t.Helper()
	top.node.nft(t, "flush", "ruleset")
	if err := top.Node.ForgetFlows(); err != nil {
		t.Fatal(err)
	}
}

// senders are the places from which the tests connect.
func senders() []string { return []string{lab.Outside, lab.Node, "a"} }

// podNames are the pods that serve: two on the node and one on the other node.
var podNames = [...]string{"a", "b", "c"}

// firstPodPort is the first of the ports at which every pod answers; each port counts as an endpoint.
const firstPodPort = 8080

func labFamily(f program.Family) lab.Family {
	if f == program.IPv6 {
		return lab.IPv6
	}
	return lab.IPv4
}

// named is an address in the address book of package lab.
func named(f program.Family, name string) netip.Addr { return lab.Address(labFamily(f), name) }

func podIP(f program.Family, pod string) netip.Addr { return lab.PodAddress(labFamily(f), pod) }
func nodeAddr(f program.Family) netip.Addr          { return named(f, "NODE") }
func clientAddr(f program.Family) netip.Addr        { return named(f, "X") }

// podEndpoint is an endpoint in a pod, at one of its ports.
func podEndpoint(f program.Family, pod string, port uint16) contents.Endpoint {
	return contents.Endpoint{Addr: netip.AddrPortFrom(podIP(f, pod), port), Local: slices.Contains(lab.LocalPods(), pod)}
}

// podEndpoints are the named pods, all at the first port.
func podEndpoints(f program.Family, pods ...string) []contents.Endpoint {
	var out []contents.Endpoint
	for _, pod := range pods {
		out = append(out, podEndpoint(f, pod, firstPodPort))
	}
	return out
}

// oneOfManyClients is an address out of a range that belongs to x.
func oneOfManyClients(f program.Family, n int) netip.Addr {
	return lab.Member(labFamily(f), "CROWD", n)
}

// Waiting times: for an answer that must come, and for one that must not.
const (
	patient   = 20 * time.Second
	impatient = 250 * time.Millisecond
)

// question asks with patience, from an address that the kernel chooses.
func question(protocol uint8, to netip.AddrPort) lab.Question {
	return lab.Question{Protocol: lab.Protocol(protocol), To: to, Patience: patient}
}

// expectOutcome connects from a place.
func (top *topology) expectOutcome(t *testing.T, from string, q lab.Question, want lab.Outcome) {
	t.Helper()
	if r := top.At(t, from).Ask(q); r.Outcome != want {
		t.Errorf("%s from %s: %s; wanted: %s", q, from, r, want)
	}
}

func protocolName(p uint8) string { return map[uint8]string{tcp: "TCP", udp: "UDP", sctp: "SCTP"}[p] }
