package dataplane

import (
	"math"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/plan"
)

// heaviest lists the endpoints of the greatest weight.
func heaviest(list []plan.Endpoint) []plan.Endpoint {
	var greatest uint16
	for _, e := range list {
		greatest = max(greatest, e.Weight)
	}
	return slices.DeleteFunc(slices.Clone(list), func(e plan.Endpoint) bool { return e.Weight < greatest })
}

func weighted(list []plan.Endpoint) bool {
	return slices.ContainsFunc(list, func(e plan.Endpoint) bool { return e.Weight != list[0].Weight })
}

// Weights may cost a pool maxShares slots for each endpoint, or slotFloor slots in total if that is more. A pool cannot
// have more than poolSlots.
const (
	maxShares = 16
	slotFloor = 256
	poolSlots = 65536
)

// slots turns weights into the smallest numbers of slots that have the same proportion. When that takes too many slots,
// the proportion is rounded. Every endpoint keeps at least one slot.
func slots(list []plan.Endpoint) []uint16 {
	divisor, total := 0, 0
	for _, e := range list {
		divisor = gcd(divisor, int(e.Weight))
		total += int(e.Weight)
	}
	out := make([]uint16, len(list))
	// Rounding up may cost one slot more for each endpoint.
	limit := max(0, min(max(slotFloor, maxShares*len(list)), poolSlots-len(list)))
	for i, e := range list {
		share := float64(e.Weight) / float64(max(divisor, 1))
		if total/max(divisor, 1) > limit {
			share = float64(e.Weight) * float64(limit) / float64(total)
		}
		out[i] = uint16(max(1, math.Round(share)))
	}
	return out
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// maxHashSlots bounds the hash tables of one Service in one family. Two of the largest tables fit, or eight tables of
// 17 to 250 endpoints. A slot takes about 220 bytes of the kernel's memory, so this is 29 MB. Ports with the same
// endpoints share a table, so only a Service whose ports have many different lists of endpoints, or session affinity,
// comes near.
const maxHashSlots = 1 << 17

// hashBudget counts the slots of a Service. It depends on the Service alone, so it is the same on each node that has the
// same objects, and after a restart.
type hashBudget struct {
	tables map[string]bool
	slots  map[program.Family]int
}

// take counts the tables of a port. It reports whether they fit.
func (b *hashBudget) take(p *contents.Port) bool {
	if !p.Method.Hashes() {
		return true
	}
	if b.tables == nil {
		b.tables, b.slots = map[string]bool{}, map[program.Family]int{}
	}
	more := 0
	tables := hashing.Needed(p)
	for key, slots := range tables {
		if !b.tables[key] {
			more += slots
		}
	}
	if b.slots[p.Family]+more > maxHashSlots {
		return false
	}
	for key := range tables {
		b.tables[key] = true
	}
	b.slots[p.Family] += more
	return true
}
