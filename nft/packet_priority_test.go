//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// priorities is a table of another program. At the first place where traffic may be classified, it notes the priority of
// the first packet of each connection.
const priorities = `table inet priorities {
	set seen {
		type classid
		flags dynamic
		size 1000
	}
	chain classify {
		type filter hook postrouting priority -150; policy accept;
		meta l4proto { tcp, udp, sctp } ct state new add @seen { meta priority }
	}
}
`

// TestPriorityAfterwards connects through frontends of all kinds, and looks at the priority of packets that this node
// forwards or sends: none has the scratch number.
func TestPriorityAfterwards(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	g := packetGlobals()
	g.IPVS = true
	e.SetGlobals(g)
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp} {
			mustSet(t, e, packetPorts(f, protocol)...)
		}
		sticky := stickyPort(f, sctp, time.Hour)
		mustSet(t, e, sticky, leftToIPVS(f))
	}
	mustApply(t, e)
	for _, f := range program.Families() {
		for _, from := range senders() {
			t.Run(fmt.Sprintf("%s/from %s", f, from), func(t *testing.T) {
				top.node.load(t, "add table inet priorities\ndelete table inet priorities\n"+priorities)
				for _, protocol := range []uint8{tcp, udp} {
					for _, p := range servedProbes(f) {
						if p.from == from {
							top.At(t, from).Once(t, question(protocol, p.to))
						}
					}
				}
				for _, to := range places(f) {
					top.At(t, from).Once(t, question(sctp, to))
				}
				for _, fe := range leftToIPVS(f).Frontends {
					q := question(tcp, netip.AddrPortFrom(fe.Addr, fe.Port))
					q.Patience = impatient
					top.At(t, from).Ask(q) // without IPVS, the packet leaves through the gateway, or reaches the pool
				}
				listed := parseListing(t, top.node.nft(t, "list", "table", "inet", "priorities"))
				if seen := listed["inet set seen"].Elements; !slices.Equal(seen, []string{"none"}) {
					t.Errorf("first packets of connections have the priorities %q; wanted: none", seen)
				}
			})
		}
	}
}

// halves are ranges that allow every client, and so are looked up.
func halves(f program.Family) []netip.Prefix {
	return prefixes(map[program.Family][]string{program.IPv4: {"0.0.0.0/1", "128.0.0.0/1"}, program.IPv6: {"::/1", "8000::/1"}}[f]...)
}

// leftToIPVS has a frontend that IPVS serves, with source ranges and without, and one that it serves for some clients.
func leftToIPVS(f program.Family) contents.Port {
	byIPVS := func(n byte, fe contents.Frontend) contents.Frontend {
		fe.Addr, fe.Port, fe.IPVS, fe.Masquerade = externalIP(f, n), 80, true, contents.MasqueradeAlways
		return fe
	}
	return contents.Port{
		Family: f, Name: "test/by-ipvs:p", Protocol: tcp, Cluster: podEndpoints(f, podNames[:]...),
		Sources: halves(f),
		Frontends: []contents.Frontend{
			byIPVS(10, contents.Frontend{}),
			byIPVS(11, contents.Frontend{Firewalled: true}),
			byIPVS(12, contents.Frontend{Pool: program.BySource}),
			byIPVS(13, contents.Frontend{Pool: program.BySource, Firewalled: true}),
		},
	}
}

// TestPriorityOfOthers: another program's priority stays on packets that are not for a Service.
func TestPriorityOfOthers(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	e.SetGlobals(packetGlobals())
	for _, f := range program.Families() {
		mustSet(t, e, packetPorts(f, tcp)...)
	}
	mustApply(t, e)
	const other = "table inet other {\n\tchain classify {\n\t\ttype filter hook forward priority -150\n\t\tmeta priority set 1:7\n\t}\n}\n"
	top.node.load(t, other+priorities)
	for _, f := range program.Families() {
		top.At(t, lab.Outside).Once(t, question(tcp, netip.AddrPortFrom(podIP(f, "a"), firstPodPort)))
	}
	listed := parseListing(t, top.node.nft(t, "list", "table", "inet", "priorities"))
	if seen := listed["inet set seen"].Elements; !slices.Equal(seen, []string{"1:7"}) {
		t.Errorf("packets that are not for a Service have the priorities %q; wanted: 1:7", seen)
	}
}
