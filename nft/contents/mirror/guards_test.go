package mirror

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestGlobalsReachTheProgram: the globals set every field of the program. An option sets the share of the affinity map,
// and source ranges set the groups of lengths (TestSourceRangeGroups).
func TestGlobalsReachTheProgram(t *testing.T) {
	plain := program.Program{Family: program.IPv4}
	reached := map[string]contents.Globals{
		"MasqueradeAll": {MasqueradeAll: true}, "PodInterface": {PodInterface: "x"}, "PodCIDRs": {PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
		"Loopback": {NodePortAddresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, "IPVS": {IPVS: true},
		"Unanswered": {Unanswered: true}, "Refusing": {Refusing: true}, "Fleet": {Fleet: true},
	}
	if is := New(program.IPv4, 9).Program(); is != (program.Program{Family: program.IPv4, AffinityShare: 9}) {
		t.Errorf("the option makes the program %+v", is)
	}
	for path, changed := range fields.Each(plain) {
		g := reached[path] // the zero Globals for a field that the test does not know
		if is := g.Program(program.IPv4); path != "Family" && path != "AffinityShare" && path != "Lengths" && is != changed {
			t.Errorf("the globals %+v make the program %+v, and nothing sets %s", g, is, path)
		}
	}
}

// TestFieldsOfElement changes an element of a frontend or of a source range, the only ones that are compared.
func TestFieldsOfElement(t *testing.T) {
	arena := bytes.Repeat([]byte{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, 2)
	e := program.Element{KeyLen: 4, DataLen: 4, Label: "ns/svc:p"}
	differs := func(changed program.Placed) bool {
		tx := &program.Transaction{}
		tx.Arena = arena
		tx.For(program.IPv4).Diff([]program.Placed{{Set: program.Services, Element: e}}, []program.Placed{changed})
		return !tx.Empty()
	}
	fields.Check(t, program.Placed{Set: program.Services, Element: e}, fields.Ignored{
		"Element.IntervalEnd": "only ranges of a single key have ends; updateRanges compares them as prefixes",
	}, differs)
	moved := e
	moved.Offset = 12
	if differs(program.Placed{Set: program.Services, Element: moved}) {
		t.Error("elements of the same bytes at two places of the arena count as different")
	}
}

func TestFieldsOfMember(t *testing.T) {
	m := newMember(netip.MustParseAddrPort("10.0.0.1:80"), 3)
	fields.Check(t, m, fields.Ignored{"slot": "an endpoint with several slots is one endpoint"}, func(changed member) bool { return !m.same(&changed) })
	fields.Check(t, m, fields.Ignored{"family": "the members of a pool are of one family"}, func(changed member) bool {
		return compareMembers(m, changed) != 0
	})
}

// TestFieldsOfOrdinal changes the token of an endpoint.
func TestFieldsOfOrdinal(t *testing.T) {
	o := ordinal{addr: netip.MustParseAddrPort("10.0.0.1:80"), n: 3, inPools: [2]bool{true, false}}
	fields.Check(t, o, fields.Ignored{"n": "assign lets an endpoint keep its number"}, func(changed ordinal) bool {
		tx := &program.Transaction{}
		(&ordinals{list: []ordinal{changed}}).write(tx.For(program.IPv4), &identity{}, []ordinal{o})
		return !tx.Empty()
	})
}
