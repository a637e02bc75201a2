package claims

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Claims is the register of all frontends. Only one goroutine at a time may use it.
type Claims struct {
	ids       map[state.Name]uint32
	claimants []claimant // by number
	free      []uint32   // unused places in claimants

	holders map[key]bid   // the Service that has a frontend
	waiting map[key][]bid // the other Services that ask for it, unsorted because they are few
	replan  []uint32      // the Services that gained or lost a frontend in the current call
	scratch []claim
	beside  beside
	ranges  ranges
	kept    kept
	host    []netip.Addr // sorted
}

// claimant is a Service that asks for frontends.
type claimant struct {
	state.Name
	created int64   // Unix time in nanoseconds
	claims  []claim // everything that it asks for, sorted, each key once
	missing int     // how many of its claims other Services hold
}

// bid is the number of a claimant in the upper 30 bits and the rank of its claim in the lowest two.
type bid uint32

// nobody is no bid: no claimant has the number 0.
const nobody bid = 0

func newBid(id uint32, r rank) bid { return bid(id)<<2 | bid(r) }

func (b bid) id() uint32 { return uint32(b >> 2) }
func (b bid) rank() rank { return rank(b & 3) }

// New returns an empty register.
func New() *Claims {
	return &Claims{ids: map[state.Name]uint32{}, claimants: make([]claimant, 1), holders: map[key]bid{}, waiting: map[key][]bid{}, beside: newBeside(), ranges: newRanges(), kept: kept{clusterIPs: map[[16]byte]owners{}}}
}

// before reports whether a has precedence over b.
func (c *Claims) before(a, b bid) bool {
	x, y := &c.claimants[a.id()], &c.claimants[b.id()]
	return cmp.Or(
		cmp.Compare(a.rank(), b.rank()),
		cmp.Compare(x.created, y.created),
		cmp.Compare(x.Namespace, y.Namespace),
		cmp.Compare(x.Name.Name, y.Name.Name),
	) < 0
}

func (c *Claims) replanAt(addr [16]byte) {
	for id := range c.beside.at[addr] {
		c.replan = append(c.replan, id)
	}
}

// changed returns the names of the Services in replan and empties the list.
func (c *Claims) changed() (names []state.Name) {
	slices.Sort(c.replan)
	for _, id := range slices.Compact(c.replan) {
		names = append(names, c.claimants[id].Name)
	}
	c.replan = c.replan[:0]
	return names
}
