package hashing

import (
	"math"
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
)

// TestFormerTable measures what a second table, with the endpoints before the latest change, would be worth to a balancer
// that gets a connection of another one. It has no flow, so it takes one of both tables. A connection is lost if the table
// at its beginning leads elsewhere. (GitHub's GLB has endpoints hand such packets on.)
func TestFormerTable(t *testing.T) {
	all := maglevEndpoints(50)
	var lacking [50][]netip.AddrPort // by the endpoint that is left out
	for i := range lacking {
		lacking[i] = filled(append(append([]contents.Endpoint{}, all[:i]...), all[i+1:]...))
	}
	without := func(gone int) []netip.AddrPort { return lacking[(gone%50+50)%50] }
	full := filled(all)
	differing := func(a, b []netip.AddrPort) float64 {
		n := 0
		for i := range a {
			if a[i] != b[i] {
				n++
			}
		}
		return float64(n) / float64(len(a))
	}
	// lost sums up connections of all ages: a share of exp(-age/life) is older than an age.
	lost := func(life float64, at func(age int) []netip.AddrPort, table []netip.AddrPort) (share float64) {
		for age := range 600 {
			share += (math.Exp(-float64(age)/life) - math.Exp(-float64(age+1)/life)) * differing(at(age), table)
		}
		return share
	}
	for _, life := range []float64{2, 10, 60} {
		every := func(age int) []netip.AddrPort { return without(-age) }
		current, former := lost(life, every, every(0)), lost(life, every, every(1))
		t.Logf("a change every second, life %2.0f s: %.2f %% lost, by the former table %.2f %%", life, 100*current, 100*former)
		if former < 0.5*current && life > 2 {
			t.Error("a former table is worth more than its guesses cost")
		}
		for _, ago := range []int{1, 5, 60} {
			once := func(age int) []netip.AddrPort {
				if age < ago {
					return without(0)
				}
				return full
			}
			t.Logf("one change %2d s ago, life %2.0f s: %.2f %% lost, by the former table %.2f %%", ago, life,
				100*lost(life, once, without(0)), 100*lost(life, once, full))
		}
	}
}
