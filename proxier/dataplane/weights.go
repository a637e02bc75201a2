package dataplane

import (
	"math"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents/hashing"
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

// Slots counts what nft needs for a port beyond one element for each endpoint; see plan.Slots. IPVS needs none of that, and
// is not asked: nft may have to serve a part of the port, or all of it.
func (d *Dataplane) Slots(port *plan.Port) (weights int, tables map[string]int) {
	m := d.scheduling.methodOf(port)
	if m.nft.Hashes() {
		return 0, hashing.Needed(d.translator.port(port, &m))
	}
	for _, list := range [...][]plan.Endpoint{port.Cluster, port.Local} {
		if m.heaviest || !weighted(list) {
			continue
		}
		for _, n := range slots(list) {
			weights += int(n) - 1
		}
	}
	return weights, nil
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
