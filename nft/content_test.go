package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestContent: engines with different histories that serve the same have the same content, and any change of a port
// shows in it.
func TestContent(t *testing.T) {
	for _, x := range examples() {
		first, second := OpenMemory(Options{}), OpenMemory(Options{Instance: 7})
		x.install(t, first.Engine)
		mustSet(t, second.Engine, manyPorts(program.IPv4, 0, 3)...)
		mustSet(t, second.Engine, manyPorts(program.IPv6, 0, 3)...)
		mustApply(t, second.Engine)
		x.install(t, second.Engine)
		for i := range 3 {
			for _, f := range program.Families() {
				second.Delete(f, manyPorts(f, i, 1)[0].Name)
			}
		}
		mustApply(t, second.Engine)
		x.sameContent(t, first, second, true)
		for i := range x.ports {
			p := x.ports[i]
			p.Cluster = append(endpoints(), p.Cluster...)
			if len(p.Cluster) > 1 {
				p.Cluster = p.Cluster[1:]
			} else {
				p.Frontends = p.Frontends[1:]
			}
			mustSet(t, second.Engine, p)
			mustApply(t, second.Engine)
			x.sameContent(t, first, second, false)
			if p = x.ports[i]; p.Answers.IsValid() {
				p.Answers = netip.AddrPortFrom(p.Answers.Addr().Next(), 80)
				mustSet(t, second.Engine, p)
				mustApply(t, second.Engine)
				x.sameContent(t, first, second, false)
			}
			mustSet(t, second.Engine, x.ports[i])
			mustApply(t, second.Engine)
		}
		x.sameContent(t, first, second, true)
	}
}

// TestContentHasAllChains: what is compared has each chain of the program, so that a rule of another tool in it is seen.
func TestContentHasAllChains(t *testing.T) {
	for _, x := range examples() {
		m := OpenMemory(Options{})
		x.install(t, m.Engine)
		content, err := m.Content()
		if err != nil {
			t.Fatal(err)
		}
		for _, tb := range m.tables {
			want := tb.Want.Program()
			want.Lengths = 0
			for _, c := range want.Chains() {
				compared := func(l inspect.Line) bool {
					return l.Family == tb.Family && l.Set == "" && strings.HasPrefix(l.Text, "chain "+c.Name+" ")
				}
				if !slices.ContainsFunc(content, compared) && c.Name != program.SourceRangesChain {
					t.Errorf("%s: %s chain %s is not compared", x.name, tb.Family, c.Name)
				}
			}
		}
	}
}

func (x example) sameContent(t *testing.T, a, b *Memory, want bool) {
	t.Helper()
	have, err := a.Content()
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.Content()
	if err != nil {
		t.Fatal(err)
	}
	if list := inspect.Difference(have, other); (len(list) == 0) != want {
		t.Errorf("%s: same content wanted: %t\nthey differ in\n%s", x.name, want, strings.Join(list, "\n"))
	}
}

// TestNumbersAreNoPriorities: what a translated packet has in its priority field is larger than what IPv4 forwarding sets from
// the TOS field. So the program can clear the numbers of packets that a bridge forwards, and leave those priorities.
func TestNumbersAreNoPriorities(t *testing.T) {
	const largestPriority = 15
	for _, x := range examples() {
		m := OpenMemory(Options{})
		x.install(t, m.Engine)
		for _, set := range []program.SetID{program.Pools, program.StickySlots, program.HashTables} {
			for _, f := range program.Families() {
				if err := m.kernel.DumpElements(f, set.Name(), func(e kernel.Found) {
					if n := binary.NativeEndian.Uint32(e.Data); n <= largestPriority {
						t.Errorf("%s: %s %s has the number %d", x.name, f, set.Name(), n)
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
