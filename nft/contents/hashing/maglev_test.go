package hashing

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
)

func maglevEndpoints(n int) []contents.Endpoint {
	out := make([]contents.Endpoint, n)
	for i := range out {
		out[i].Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8080)
	}
	return out
}

// filled is the endpoint in each slot.
func filled(endpoints []contents.Endpoint) []netip.AddrPort {
	var out []netip.AddrPort
	for _, i := range maglev(endpoints) {
		out = append(out, endpoints[i].Addr)
	}
	return out
}

func shares(table []netip.AddrPort) map[netip.AddrPort]int {
	count := map[netip.AddrPort]int{}
	for _, addr := range table {
		count[addr]++
	}
	return count
}

func TestMaglevIsEven(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 16, 17, 160, 250, 600} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			table := filled(maglevEndpoints(n))
			count := shares(table)
			if len(count) != n || count[netip.AddrPort{}] != 0 {
				t.Fatalf("%d endpoints have slots, want %d", len(count), n)
			}
			// Endpoints take turns: shares differ by one slot at most.
			for addr, got := range count {
				if got < len(table)/n || got > len(table)/n+1 {
					t.Errorf("%s has %d of %d slots, want %d or one more", addr, got, len(table), len(table)/n)
				}
			}
		})
	}
}

func TestMaglevFollowsWeights(t *testing.T) {
	endpoints := maglevEndpoints(3)
	endpoints[1].Slots = 3
	count := shares(filled(endpoints))
	for i, want := range []int{1, 3, 1} {
		if got := float64(count[endpoints[i].Addr]) / float64(Size(3)) * 5; got < float64(want)-0.05 || got > float64(want)+0.05 {
			t.Errorf("endpoint %d has %.2f fifths of the slots, want %d", i, got, want)
		}
	}
}

// TestMaglevDisruption: when one endpoint goes, the other endpoints lose less than 2% of their slots.
func TestMaglevDisruption(t *testing.T) {
	for _, n := range []int{2, 3, 5, 7, 10, 16, 40, 100, 170, 250} {
		worst := 0.0
		full := maglevEndpoints(n)
		before := filled(full)
		for gone := range full {
			after := filled(slices.Delete(slices.Clone(full), gone, gone+1))
			if len(after) != len(before) {
				continue // n-1 endpoints have a smaller table, in which all slots are different
			}
			kept, moved := 0, 0
			for slot, addr := range before {
				if addr != full[gone].Addr {
					kept++
					if after[slot] != addr {
						moved++
					}
				}
			}
			worst = max(worst, float64(moved)/float64(kept))
		}
		t.Logf("%d endpoints: at worst, the others lose %.2f%% of their slots", n, 100*worst)
		if worst >= 0.02 {
			t.Errorf("%d endpoints: the others lose %.2f%% of their slots, want less than 2%%", n, 100*worst)
		}
	}
}

func BenchmarkMaglev(b *testing.B) {
	for _, n := range []int{10, 100, 600} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			endpoints := maglevEndpoints(n)
			for b.Loop() {
				maglev(endpoints)
			}
		})
	}
}

// TestSizes: nodes with different versions of Verdict must have the same tables, so the sizes stay.
func TestSizes(t *testing.T) {
	for endpoints, want := range map[int]uint32{1: 1, 2: 4093, 16: 4093, 17: 16381, 250: 16381, 251: 65521, 60000: 65521} {
		if got := Size(endpoints); got != want {
			t.Errorf("%d endpoints have a table of %d slots, want %d", endpoints, got, want)
		}
	}
}
