// Package claims settles which Service gets a frontend that several Services ask for. One whose cluster IP it is comes
// first: the API server hands those out, while external IPs are whatever somebody writes into a Service, and writing
// another one's cluster IP must not take over its traffic. Then the oldest has it, and of two with the same age the one
// whose namespace and name come first. The others lose that frontend, and only that.
//
// It remembers who claims what from plan to plan, but neither plans nor programs anything: it takes frontends out of a
// plan and names the Services that have to be planned again.
package claims

import (
	"cmp"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Claims is the register of all frontends. Not for use by several goroutines at once.
type Claims struct {
	ids       map[state.Name]uint32
	claimants []claimant
	free      []uint32 // unused places in claimants

	holders map[key]bid   // who has a frontend
	waiting map[key][]bid // who else asked for it; few, so no order is kept
	replan  []uint32      // who gained or lost something in the present call
	scratch []claim
}

// claimant is a Service that asks for frontends.
type claimant struct {
	state.Name
	created int64   // Unix time in nanoseconds
	claims  []claim // everything it asks for, sorted, each key once
	missing int     // how many of them others have
}

// bid is a claimant's number; the lowest bit says that it does not ask for the frontend as a cluster IP of its own.
type bid uint32

func newBid(id uint32, clusterIP bool) bid {
	if clusterIP {
		return bid(id) << 1
	}
	return bid(id)<<1 | 1
}

func (b bid) id() uint32    { return uint32(b >> 1) }
func (b bid) weaker() uint8 { return uint8(b & 1) }

// New returns an empty register.
func New() *Claims {
	return &Claims{ids: map[state.Name]uint32{}, holders: map[key]bid{}, waiting: map[key][]bid{}}
}

// Resolve registers what a freshly made plan asks for and takes out of it what others have, with a Problem for each.
// It returns the other Services that gained or lost a frontend by this: they must be planned and resolved again, before
// the kernel sees this plan, because their plans and this one may overlap. Resolving those changes nothing further.
//
// The work depends on the Service's own frontends, and not at all on how many there are.
func (c *Claims) Resolve(p *plan.Service, created time.Time) (lost []state.Problem, replan []state.Name) {
	want := c.wanted(p)
	tidy := len(want)
	slices.SortFunc(want, claim.compare)
	want = slices.CompactFunc(want, claim.sameKey) // the first of them is the cluster IP, if there is one
	id := c.register(p.Name, created.UnixNano(), want)
	if c.claimants[id].missing > 0 || len(want) < tidy {
		lost = c.strip(p, id)
	}
	return lost, c.changed()
}

// Release forgets a Service that is gone and returns the Services that gained something by it.
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

// register brings the claims of a Service up to date.
func (c *Claims) register(n state.Name, created int64, want []claim) uint32 {
	id, known := c.ids[n]
	if !known {
		id = c.newID()
		c.ids[n] = id
		c.claimants[id] = claimant{Name: n, created: created}
	}
	if c.claimants[id].created != created {
		// Another Service under the same name: it has to queue anew everywhere.
		c.update(id, nil)
		c.claimants[id].created = created
	}
	c.update(id, want)
	return id
}

func (c *Claims) newID() uint32 {
	if last := len(c.free) - 1; last >= 0 {
		id := c.free[last]
		c.free = c.free[:last]
		return id
	}
	c.claimants = append(c.claimants, claimant{})
	return uint32(len(c.claimants) - 1)
}

// update replaces the sorted list of what a Service asks for.
func (c *Claims) update(id uint32, want []claim) {
	have := c.claimants[id].claims
	if slices.Equal(have, want) {
		return
	}
	next := slices.Clone(want)
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
	c.claimants[id].claims = next
}

// compareHeads orders the keys of the first elements of two sorted lists; the end of a list comes last.
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
	k, own := want.key, newBid(id, want.clusterIP)
	holder, taken := c.holders[k]
	switch {
	case !taken:
		c.holders[k] = own
	case c.before(own, holder):
		c.holders[k] = own
		c.wait(holder, k)
		c.replan = append(c.replan, holder.id())
	default:
		c.wait(own, k)
	}
}

func (c *Claims) wait(b bid, k key) {
	c.waiting[k] = append(c.waiting[k], b)
	c.claimants[b.id()].missing++
}

func (c *Claims) withdraw(id uint32, given claim) {
	k, own := given.key, newBid(id, given.clusterIP)
	if c.holders[k] != own {
		c.stopWaiting(own, k)
		return
	}
	queue := c.waiting[k]
	if len(queue) == 0 {
		delete(c.holders, k)
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
	c.replan = append(c.replan, heir.id())
}

func (c *Claims) stopWaiting(b bid, k key) {
	left := slices.DeleteFunc(c.waiting[k], func(other bid) bool { return other == b })
	c.claimants[b.id()].missing--
	if len(left) == 0 {
		delete(c.waiting, k)
	} else {
		c.waiting[k] = left
	}
}

// before tells whether a has precedence over b.
func (c *Claims) before(a, b bid) bool {
	x, y := &c.claimants[a.id()], &c.claimants[b.id()]
	return cmp.Or(
		cmp.Compare(a.weaker(), b.weaker()),
		cmp.Compare(x.created, y.created),
		cmp.Compare(x.Namespace, y.Namespace),
		cmp.Compare(x.Name.Name, y.Name.Name),
	) < 0
}

// changed returns the names collected in replan and empties it.
func (c *Claims) changed() (names []state.Name) {
	slices.Sort(c.replan)
	for _, id := range slices.Compact(c.replan) {
		names = append(names, c.claimants[id].Name)
	}
	c.replan = c.replan[:0]
	return names
}
