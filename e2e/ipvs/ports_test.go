//go:build ipvs

package ipvs

import (
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestSourcePorts: a client uses one source port for connections to two frontends with the same endpoint. With nft both
// live. IPVS breaks the first one, whoever writes the virtual servers; ipvsctl/README.md says so. When a kernel
// passes with both, that passage can go.
func TestSourcePorts(t *testing.T) {
	each(t, []test{
		{"nft", onlyNFT(), func(b *bed) { b.onePortTwice(lab.Answered) }},
		{"ipvs", ipvs(), func(b *bed) { b.onePortTwice(lab.Dropped) }},
	})
}

func (b *bed) onePortTwice(first lab.Outcome) {
	b.Helper()
	b.serve("", everyFrontend)
	b.settled("endpoints web b")
	q := b.at(80)
	q.Ports = lab.PortRange{Low: 41000, High: 41000}
	other := q
	other.To = netip.AddrPortFrom(b.address("EXT1"), 80)
	earlier, _ := b.hold("x", q)
	later, _ := b.hold("x", other)
	if r := later.Send(patience); r.Outcome != lab.Answered {
		b.Errorf("the later connection: %s", r)
	}
	if r := earlier.Send(patience); r.Outcome != first {
		b.Errorf("the earlier connection: %s, want %s", r, first)
	}
}
