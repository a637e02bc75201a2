package elements

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestGlobalsReachTheProgram: the globals set every field of the program. Options set the share of the affinity map and what the
// kernel lacks,
// and source ranges set the groups of lengths (TestSourceRangeGroups).
func TestGlobalsReachTheProgram(t *testing.T) {
	plain := program.Program{Family: program.IPv4}
	reached := map[string]contents.Globals{
		"MasqueradeAll": {MasqueradeAll: true}, "PodInterface": {PodInterface: "x"}, "PodCIDRs": {PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
		"Loopback": {NodePortAddresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, "IPVS": {IPVS: true},
		"Unanswered": {Unanswered: true}, "Refusing": {Refusing: true}, "Fleet": {Fleet: true},
		"DropInvalid": {DropInvalid: true}, "FastPath": {FastPath: 1}, "BridgesStay": {BridgesStay: true},
	}
	given := program.Program{Family: program.IPv4, AffinityShare: 9, Circles: true}
	if is := New(program.IPv4, given).Program(); is != given {
		t.Errorf("the options make the program %+v", is)
	}
	for path, changed := range fields.Each(plain) {
		g := reached[path] // the zero Globals for a field that the test does not know
		if is := g.Program(program.IPv4); !slices.Contains([]string{"Family", "AffinityShare", "Circles", "Lengths"}, path) && is != changed {
			t.Errorf("the globals %+v make the program %+v, and nothing sets %s", g, is, path)
		}
	}
}

// TestFieldsOfOrdinal changes the token of an endpoint.
func TestFieldsOfOrdinal(t *testing.T) {
	o := ordinal{addr: netip.MustParseAddrPort("10.0.0.1:80"), n: 3, inPools: [2]bool{true, false}}
	records := func(o ordinal) string { return string((&ordinals{list: []ordinal{o}}).records(&identity{})) }
	fields.Check(t, o, nil, func(changed ordinal) bool { return records(o) != records(changed) })
}
