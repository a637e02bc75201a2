//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestPodDetection goes through the ways to recognize local pods, with and without masquerading of everything. It
// checks whose connections to a cluster IP are masqueraded, and who reaches all pods through an address with policy
// Local.
func TestPodDetection(t *testing.T) {
	all, local := podNames[:], podNames[:2]
	tests := []struct {
		name          string
		globals       contents.Globals
		masqueraded   []string // to a cluster IP
		shortCircuits []string // to an external address with policy Local
	}{
		{"by address", contents.Globals{PodCIDRs: packetGlobals().PodCIDRs, NodePodCIDRs: packetGlobals().NodePodCIDRs}, []string{"x", "node"}, []string{"node", "a"}},
		{"by address, of any node", contents.Globals{PodCIDRs: packetGlobals().PodCIDRs}, []string{"x", "node"}, []string{"node"}},
		{"by prefix of the interface", contents.Globals{PodInterface: "veth-*"}, []string{"x", "node"}, []string{"node", "a"}},
		{"by interface", contents.Globals{PodInterface: "br-pods"}, []string{"x", "node", "a"}, []string{"node"}},
		{"not at all", contents.Globals{}, nil, []string{"node"}},
		{"by address, everything masqueraded", contents.Globals{PodCIDRs: packetGlobals().PodCIDRs, MasqueradeAll: true},
			[]string{"x", "node", "a"}, []string{"node"}},
		{"not at all, everything masqueraded", contents.Globals{MasqueradeAll: true}, []string{"x", "node", "a"}, []string{"node"}},
	}
	top := newTopology(t)
	e := top.node.engine(t)
	for _, f := range program.Families() {
		mustSet(t, e, packetPorts(f, tcp)...)
	}
	for _, test := range tests {
		e.SetGlobals(test.globals)
		mustApply(t, e)
		for _, f := range program.Families() {
			for _, from := range senders() {
				t.Run(test.name+"/"+f.String()+"/from "+from, func(t *testing.T) {
					p := probe{from: from, to: netip.AddrPortFrom(serviceIP(f, 1), 80), pods: all, masqueraded: slices.Contains(test.masqueraded, from)}
					top.checkServed(t, f, tcp, p)
					p = probe{from: from, to: netip.AddrPortFrom(externalIP(f, 2), 80), pods: local, masqueraded: from == "node"}
					if slices.Contains(test.shortCircuits, from) {
						p.pods = all
					}
					top.checkServed(t, f, tcp, p)
				})
			}
		}
	}
}

// TestPodsOfOtherNodes: a pod that may be on another node gets an endpoint on this node, which sees the pod. If there is none, it gets
// one elsewhere, which sees this node: its answers would not come back otherwise. Pods that are on this node for certain get any
// endpoint, and each sees the pod.
func TestPodsOfOtherNodes(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			mustSet(t, e, packetPorts(f, protocol)...)
		}
	}
	if err := top.ConnectNeighbors(); err != nil {
		t.Fatal(err)
	}
	all, local, remote := podNames[:], podNames[:2], podNames[2:]
	for _, known := range []bool{true, false} {
		g := packetGlobals()
		if !known {
			g.NodePodCIDRs = nil
		}
		e.SetGlobals(g)
		mustApply(t, e)
		for _, f := range program.Families() {
			for _, protocol := range []uint8{tcp, udp, sctp} {
				for _, from := range []string{"a", "d"} {
					here := known && from == "a"
					pods := local
					if here {
						pods = all
					}
					t.Run(fmt.Sprintf("%s/%s/known=%t/from %s", f, protocolName(protocol), known, from), func(t *testing.T) {
						for _, to := range []netip.AddrPort{netip.AddrPortFrom(externalIP(f, 2), 80), netip.AddrPortFrom(nodeAddr(f), 30002)} {
							top.checkServed(t, f, protocol, probe{from: from, to: to, pods: pods})
						}
						for _, to := range []netip.AddrPort{netip.AddrPortFrom(externalIP(f, 7), 80), netip.AddrPortFrom(nodeAddr(f), 30007)} {
							top.checkServed(t, f, protocol, probe{from: from, to: to, pods: remote, masqueraded: !here})
						}
					})
				}
			}
		}
	}
}
