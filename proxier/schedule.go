package proxier

import (
	"fmt"
	"math"
	"slices"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
)

// Schedulers carry the names that IPVS gives them (ipvsadm(8)); random is Verdict's own and the default.
const schedulerRandom = "random"

// nftMethods are the schedulers that the nft program has, exactly or nearly: "numgen inc" counts for all pools of a
// class together, so that rr and wrr are even but not in strict turn.
func nftMethod(scheduler string) (nft.Method, bool) {
	switch scheduler {
	case "", schedulerRandom:
		return nft.Random, true
	case "sh", "mh":
		return nft.SourceHash, true
	case "rr", "wrr":
		return nft.InTurn, true
	}
	return nft.Random, false
}

// ipvsSchedulers need state for each connection or endpoint that the nft program does not have.
func needsIPVS(scheduler string) bool {
	return slices.Contains([]string{"lc", "wlc", "sed", "nq", "lblc", "lblcr", "dh", "fo", "ovf", "twos"}, scheduler)
}

// method chooses how the nft program picks an endpoint, and says why when it is not what was asked for.
func method(p *plan.Port) (m nft.Method, problem string) {
	m, ok := nftMethod(p.Scheduler)
	switch {
	case ok:
		return m, ""
	case needsIPVS(p.Scheduler):
		return m, fmt.Sprintf("scheduler %q needs IPVS; the endpoints are picked at random instead", p.Scheduler)
	}
	return m, fmt.Sprintf("unknown scheduler %q; the endpoints are picked at random", p.Scheduler)
}

// maxShares bounds the slots that weights may cost a pool, as a multiple of its endpoints (and at least slotFloor).
const (
	maxShares = 16
	slotFloor = 256
)

// slots turns weights into numbers of slots in the same proportion, as small as they can be. Weights whose proportion
// would need too many slots are rounded; every endpoint keeps at least one.
func slots(list []plan.Endpoint) []uint16 {
	divisor, total := 0, 0
	for _, e := range list {
		divisor = gcd(divisor, int(e.Weight))
		total += int(e.Weight)
	}
	out := make([]uint16, len(list))
	limit := max(slotFloor, maxShares*len(list))
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
