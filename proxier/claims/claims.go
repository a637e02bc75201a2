package claims

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Resolve registers what a new plan asks for. It removes the frontends that other Services have from the plan and
// returns a Problem for each. It also returns the other Services that gained or lost a frontend. The caller must plan
// and resolve those again before the kernel sees this plan, because their old plans may overlap with it. Resolving them
// again affects no further Service.
//
// The cost depends on the frontends of this Service. It does not depend on the size of the register.
func (c *Claims) Resolve(p *plan.Service, created time.Time) (lost []state.Problem, replan []state.Name) {
	want := c.wanted(p)
	asked := len(want)
	slices.SortFunc(want, claim.compare)
	want = slices.CompactFunc(want, claim.sameKey) // keeps the first of equal keys: the strongest claim
	id := c.register(p.Name, created.UnixNano(), want)
	if c.claimants[id].missing > 0 || len(want) < asked || c.ranges.meet(want) || c.kept.meets(p) {
		lost = c.strip(p, id)
	}
	lost = state.Bound(state.Object{Kind: "Service", Name: p.Name}, lost, c.spareHost(p))
	c.replan = slices.DeleteFunc(c.replan, func(other uint32) bool { return other == id })
	return lost, c.changed()
}

// Release forgets a Service that is gone. It returns the Services that gained a frontend.
func (c *Claims) Release(n state.Name) (replan []state.Name) {
	id, ok := c.ids[n]
	if !ok {
		return nil
	}
	c.update(id, nil)
	delete(c.ids, n)
	c.claimants[id] = claimant{}
	c.free = append(c.free, id)
	return c.changed()
}

// register updates the claims of a Service and returns its number.
func (c *Claims) register(n state.Name, created int64, want []claim) uint32 {
	id, known := c.ids[n]
	if !known {
		if last := len(c.free) - 1; last >= 0 {
			id, c.free = c.free[last], c.free[:last]
		} else {
			id = uint32(len(c.claimants))
			c.claimants = append(c.claimants, claimant{})
		}
		c.ids[n] = id
		c.claimants[id] = claimant{Name: n, created: created}
	}
	if c.claimants[id].created != created {
		// This is another Service with the same name. It gives up every place that the old one had.
		c.update(id, nil)
		c.claimants[id].created = created
	}
	c.update(id, want)
	return id
}

// update replaces the sorted list of claims of a Service.
func (c *Claims) update(id uint32, want []claim) {
	have := c.claimants[id].claims
	if slices.Equal(have, want) {
		return
	}
	next := slices.Clone(want)
	c.beside.index(id, have, next)
	c.indexClusterIPs(id, have, next)
	c.claimants[id].claims = next
	for len(have) > 0 || len(want) > 0 {
		switch order := compareHeads(have, want); {
		case order < 0:
			c.withdraw(id, have[0])
			have = have[1:]
		case order > 0:
			c.claim(id, want[0])
			want = want[1:]
		default:
			if have[0] != want[0] {
				c.withdraw(id, have[0])
				c.claim(id, want[0])
			}
			have, want = have[1:], want[1:]
		}
	}
}

// indexClusterIPs counts the cluster IPs in the claims of one Service. Both lists are sorted. Services with an external
// address that became a cluster IP, or is one no longer, are planned again.
func (c *Claims) indexClusterIPs(id uint32, before, after []claim) {
	isClusterIP := func(c *claim) bool { return c.rank == rankClusterIP }
	old, current := addrsOf(before, isClusterIP), addrsOf(after, isClusterIP)
	for _, a := range without(current, old) {
		if c.kept.clusterIPs[a] = c.kept.clusterIPs[a].with(id, 1); c.kept.clusterIPs[a].n == 1 {
			c.replanAt(a)
		}
	}
	for _, a := range without(old, current) {
		if c.kept.clusterIPs[a] = c.kept.clusterIPs[a].with(id, -1); c.kept.clusterIPs[a].n == 0 {
			delete(c.kept.clusterIPs, a)
			c.replanAt(a)
		}
	}
}

// compareHeads compares the keys of the first elements of two sorted lists. An empty list comes last.
func compareHeads(a, b []claim) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return a[0].key.compare(b[0].key)
}

func (c *Claims) claim(id uint32, want claim) {
	if want.besideNodePort() {
		c.standBeside(id, want.key, 1)
		return
	}
	k, own := want.key, newBid(id, want.rank)
	holder, taken := c.holders[k]
	switch {
	case !taken:
		c.holders[k] = own
		c.displace(k, 1)
	case c.before(own, holder):
		c.holders[k] = own
		c.wait(holder, k)
		c.note(k)
		c.replan = append(c.replan, holder.id())
	default:
		c.wait(own, k)
	}
	overlap{c, id, want}.replanWeaker()
}

func (c *Claims) wait(b bid, k key) {
	c.block(blockedKey{b.id(), k}, key{}, false) // now it is lost to the holder
	c.waiting[k] = append(c.waiting[k], b)
	c.claimants[b.id()].missing++
}

func (c *Claims) withdraw(id uint32, given claim) {
	c.block(blockedKey{id, given.key}, key{}, false)
	if given.besideNodePort() {
		c.standBeside(id, given.key, -1)
		return
	}
	overlap{c, id, given}.replanLosers()
	k, own := given.key, newBid(id, given.rank)
	if c.holders[k] != own {
		c.stopWaiting(own, k)
		return
	}
	queue := c.waiting[k]
	if len(queue) == 0 {
		delete(c.holders, k)
		c.displace(k, -1)
		return
	}
	heir := slices.MinFunc(queue, func(a, b bid) int {
		if c.before(a, b) {
			return -1
		}
		return 1
	})
	c.stopWaiting(heir, k)
	c.holders[k] = heir
	c.note(k)
	c.replan = append(c.replan, heir.id())
}

func (c *Claims) stopWaiting(b bid, k key) {
	remaining := slices.DeleteFunc(c.waiting[k], func(other bid) bool { return other == b })
	c.claimants[b.id()].missing--
	if len(remaining) == 0 {
		delete(c.waiting, k)
	} else {
		c.waiting[k] = remaining
	}
}

// standBeside records that a frontend of the Service stands beside a node port (1), or does so no more (-1).
func (c *Claims) standBeside(id uint32, k key, more int) {
	change := insert[key, uint32]
	if more < 0 {
		change = remove[key, uint32]
	}
	if change(c.beside.ids, k, id); k.end != 0 {
		change(c.beside.served, k, id)
		c.noteRange(k, more)
	}
	if _, taken := c.holders[k]; taken {
		c.claimants[id].missing += more
	}
}

// displace notes that a key got its first holder (1) or lost its last one (-1). The Services that stand beside a node port
// lose or gain a frontend.
func (c *Claims) displace(k key, missing int) {
	c.noteRange(k, missing)
	if !k.isNodePort() {
		return
	}
	for id := range c.beside.ids[k] {
		c.claimants[id].missing += missing
		c.replan = append(c.replan, id)
	}
	c.ranges.hold(k, missing > 0)
}

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
	return &Claims{
		ids: map[state.Name]uint32{}, claimants: make([]claimant, 1), holders: map[key]bid{}, waiting: map[key][]bid{},
		beside: beside{map[[16]byte]bool{}, map[[16]byte]map[uint32]struct{}{}, map[key]map[uint32]struct{}{}, map[key]map[uint32]struct{}{}},
		ranges: ranges{map[key]*tree{}, map[key]int{}, map[key][]uint16{}, map[blockedKey]key{}, map[key]map[blockedKey]struct{}{}},
		kept:   kept{clusterIPs: map[[16]byte]owners{}},
	}
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
