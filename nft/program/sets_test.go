package program

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// TestSetsSayTheSame: a set for node ports, and one for ranges of ports, say about a frontend what the set for frontends says.
func TestSetsSayTheSame(t *testing.T) {
	says := map[string]Says{}
	sets := Program{Family: IPv4}.Sets()
	for i := range sets {
		says[sets[i].Name] = sets[i].Says
	}
	for name, want := range map[string]Says{
		"masquerade-always": MasqueradedAlways, "masquerade-node": MasqueradedNode, "firewalled": Limited, "fast-path": Offered,
		"holds-refusals": HoldingRefusals, "no-endpoints": Rejected, "no-local-endpoints": Dropped,
	} {
		for _, other := range []string{name, name + "-nodeports", "range-" + name} {
			if got, ok := says[other]; ok && got != want {
				t.Errorf("%s says %v, want %v", other, got, want)
			}
		}
	}
}

// TestDraws: up to 16 slots, and with a hash, the draw has as many outcomes as slots; otherwise the next power of two.
func TestDraws(t *testing.T) {
	for n, want := range map[int]uint32{1: 1, 16: 16, 17: 32, 32: 32, 33: 64} {
		if got := drawFor(Random, n); got != (Draw{Random, want}) {
			t.Errorf("%d slots are drawn by %+v, want %d outcomes", n, got, want)
		}
		if got := drawFor(SourceHash, n); got != (Draw{SourceHash, uint32(n)}) {
			t.Errorf("%d slots of a hash are drawn by %+v", n, got)
		}
	}
}

// TestOptionsOfFingerprint: what a fingerprint says about the options is read again.
func TestOptionsOfFingerprint(t *testing.T) {
	want := Program{Family: IPv6, IPVS: true, PodInterface: "cni0", AffinityShare: 7, FastPath: 20}
	sets := want.Sets()
	_, options, _ := strings.Cut(strings.TrimPrefix(want.Fingerprint(sets[:]), "program "), " ")
	if got := Parse(IPv6, options); got != want {
		t.Errorf("%q is read as %+v, want %+v", options, got, want)
	}
}

// TestLengths: a group for each eight lengths of prefixes.
func TestLengths(t *testing.T) {
	for f, want := range map[Family]LengthGroups{IPv4: 1<<4 - 1, IPv6: 1<<16 - 1} {
		if got := AllLengths(f); got != want {
			t.Errorf("%s has the groups %b, want %b", f.Version(), got, want)
		}
	}
	if GroupOf(1) != 1 || GroupOf(8) != 1 || GroupOf(9) != 2 || GroupOf(128) != 1<<15 {
		t.Errorf("1, 8, 9 and 128 are in the groups %b, %b, %b and %b", GroupOf(1), GroupOf(8), GroupOf(9), GroupOf(128))
	}
}

// TestFrontendLength: the key of a frontend is as long as what a Builder makes of it.
func TestFrontendLength(t *testing.T) {
	for f, addr := range map[Family]string{IPv4: "10.96.0.1", IPv6: "fd00::1"} {
		var b Builder
		b.Addr(netip.MustParseAddr(addr))
		b.Proto(6)
		b.Port(80)
		if got := FrontendLength(f); got != len(b.Arena) {
			t.Errorf("%s: %d bytes, want %d", f.Version(), got, len(b.Arena))
		}
	}
}

// TestTraceChains: packets are marked wherever they come from.
func TestTraceChains(t *testing.T) {
	for _, c := range TraceChains(Flow{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.96.0.1"), Protocol: 6, DstPort: 80}) {
		if len(c.Rules) != 1 || !strings.Contains(c.Rules[0].String(), "10.96.0.1") {
			t.Errorf("the chain %s has the rules %v", c.Name, c.Rules)
		}
	}
}

// TestCounts: elements that come and that go are changes alike.
func TestCounts(t *testing.T) {
	tx := &Transaction{}
	w := tx.For(IPv4)
	for key := range byte(3) {
		e := w.Element("", func(b *Builder) { b.Arena = append(b.Arena, key) }, nil)
		w.Insert(Endpoints, e)
		w.Remove(ClusterIPs, e)
	}
	w.Insert(ClusterIPs, w.Element("", func(b *Builder) { b.Arena = append(b.Arena, 9) }, nil))
	if got, want := tx.Counts(), (serviceport.Counts{serviceport.Slot: 3, serviceport.Key: 4}); got != want {
		t.Errorf("counted %v, want %v", got, want)
	}
}
