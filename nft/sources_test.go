package nft

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestSourceRangesCost counts the elements of a service port with many ranges and two limited frontends, and of a change
// of one range.
func TestSourceRangesCost(t *testing.T) {
	for _, f := range program.Families() {
		m := OpenMemory(Options{})
		mustSet(t, m.Engine, contents.Port{
			Family: f, Name: "test/other:p", Protocol: tcp,
			Frontends: []contents.Frontend{limited(contents.Frontend{Addr: numbered4or6(f, 30, 1), Port: 80, Refusal: program.Reject})},
			Sources:   []netip.Prefix{netip.PrefixFrom(numbered4or6(f, 40, 0), 24)},
		})
		mustApply(t, m.Engine)
		const ranges = 3000
		port := contents.Port{Family: f, Name: "test/many:p", Protocol: tcp, Frontends: []contents.Frontend{
			limited(contents.Frontend{Addr: numbered4or6(f, 30, 2), Port: 80}), limited(contents.Frontend{Addr: numbered4or6(f, 30, 3), Port: 80}),
		}}
		for i := range ranges {
			a := numbered4or6(f, 40, i)
			port.Sources = append(port.Sources, netip.PrefixFrom(a, a.BitLen()))
		}
		mustSet(t, m.Engine, port)
		// One element for each range, one for the group of their length, and two frontends with their addresses.
		if r := mustApply(t, m.Engine); r.Added != ranges+5 || r.Deleted != 0 {
			t.Errorf("%s: %d elements added, %d deleted; wanted %d added", f, r.Added, r.Deleted, ranges+5)
		}
		port.Sources[7] = netip.PrefixFrom(numbered4or6(f, 50, 0), port.Sources[7].Bits())
		mustSet(t, m.Engine, port)
		if r := mustApply(t, m.Engine); r.Added != 1 || r.Deleted != 1 {
			t.Errorf("%s: one range changed: %d elements added, %d deleted", f, r.Added, r.Deleted)
		}
	}
}

// TestRestartWithSourceRangesAlone: ports whose frontends have source ranges and no endpoints keep their numbers, so a restart
// writes nothing of them.
func TestRestartWithSourceRangesAlone(t *testing.T) {
	ports := manyPorts(program.IPv4, 0, 3)
	for i := range ports {
		ports[i].Cluster, ports[i].Sources = nil, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		ports[i].Frontends[0] = contents.Frontend{Addr: ports[i].Frontends[0].Addr, Port: 80, Firewalled: true, Refusal: program.Reject}
	}
	ports[2].Frontends[0].EndPort = 90
	m := OpenMemory(Options{})
	mustSet(t, m.Engine, ports...)
	mustApply(t, m.Engine)
	again := restart(t, m)
	slices.Reverse(ports)
	mustSet(t, again.Engine, ports...)
	if text := mustApply(t, again.Engine).Text(); text != "" {
		t.Errorf("it writes\n%s", text)
	}
}
