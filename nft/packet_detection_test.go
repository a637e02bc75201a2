package nft

import (
	"net/netip"
	"slices"
	"testing"
)

// TestPodDetection goes through the ways of telling local pods, and through masquerading everything: who is masqueraded
// on the way to a cluster IP, and who may pass by policy Local.
func TestPodDetection(t *testing.T) {
	all, local := podNames[:], podNames[:2]
	tests := []struct {
		name          string
		globals       Globals
		masqueraded   []string // to a cluster IP
		shortCircuits []string // to an external address with policy Local
	}{
		{"by address", Globals{PodCIDRs: packetGlobals().PodCIDRs}, []string{"client", "node"}, []string{"node", "pod-a"}},
		{"by prefix of the interface", Globals{PodInterface: "veth-pod-*"}, []string{"client", "node"}, []string{"node", "pod-a"}},
		{"by interface", Globals{PodInterface: "veth-pod-b"}, []string{"client", "node", "pod-a"}, []string{"node"}},
		{"not at all", Globals{}, nil, []string{"node"}},
		{"by address, everything masqueraded", Globals{PodCIDRs: packetGlobals().PodCIDRs, MasqueradeAll: true},
			[]string{"client", "node", "pod-a"}, []string{"node", "pod-a"}},
		{"not at all, everything masqueraded", Globals{MasqueradeAll: true}, []string{"client", "node", "pod-a"}, []string{"node"}},
	}
	top := newTopology(t)
	e := top.node.engine(t)
	for _, f := range Families() {
		mustSet(t, e, packetPorts(f, tcp)...)
	}
	for _, test := range tests {
		e.SetGlobals(test.globals)
		mustApply(t, e)
		for _, f := range Families() {
			for _, from := range []string{"client", "node", "pod-a"} {
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
