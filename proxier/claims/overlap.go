package claims

import (
	"maps"
	"slices"
)

// overlap finds what overlaps with a claim of a Service.
type overlap struct {
	c    *Claims
	id   uint32
	want claim
}

// replanWeaker has the Services planned again whose weaker claims overlap with one that came, and are served. The cost depends on how
// many these are: claims that were lost before are not looked at.
func (o overlap) replanWeaker() {
	var list []blockedKey
	o.served(o.c.ranges.at[o.want.place()], &list)
	for _, is := range list {
		o.c.block(is, o.want.key, true) // so that the next claim does not find it again
		o.c.replan = append(o.c.replan, is.id)
	}
}

// served lists the weaker claims of other Services in a tree that overlap with the claim, and are served.
func (o overlap) served(t *tree, list *[]blockedKey) {
	own, k := newBid(o.id, o.want.rank), o.want.key
	if t == nil || t.last < k.port || t.weakest == nobody || !o.c.before(own, t.weakest) {
		return
	}
	o.served(t.left, list)
	switch is := t.served; {
	case is == nobody || is.id() == o.id && !t.isNodePort() || !o.rivals(t.key) || !o.c.before(own, is):
	case t.isNodePort():
		for id := range o.c.beside.served[t.key] {
			if id != o.id {
				*list = append(*list, blockedKey{id, t.key})
			}
		}
	default:
		*list = append(*list, blockedKey{is.id(), t.key})
	}
	if t.port <= k.lastPort() {
		o.served(t.right, list)
	}
}

// rivals reports whether the claim overlaps with a key, is not equal, and either of the two is a range.
func (o overlap) rivals(at key) bool {
	return at.overlaps(o.want.key) && at != o.want.key && at.end|o.want.end != 0
}

// replanLosers has the Services planned again that lost something to a claim that is about to go.
func (o overlap) replanLosers() {
	own, holder := newBid(o.id, o.want.rank), o.c.holders[o.want.key]
	if holder != own && holder.rank() == rankExternalIP {
		return // whatever is weaker is weaker than the holder, too
	}
	for is := range o.c.ranges.losers[o.want.key] {
		if holder == own || holder.id() == is.id {
			o.c.block(is, key{}, false)
			o.c.replan = append(o.c.replan, is.id)
		}
	}
}

// stronger finds the strongest claim of another Service that overlaps with the claim, if it has precedence.
func (o overlap) stronger() (holder uint32, k key, found bool) {
	best := newBid(o.id, o.want.rank)
	o.strongest(o.c.ranges.at[o.want.place()], &best, &k)
	return best.id(), k, k != key{}
}

// strongest finds the strongest claim of another Service in a tree that overlaps with the claim; if that Service has several, the
// first one. The branch with the strongest claims comes first, so that there is nothing to find in most others. The worst case is a place
// with short strong ranges and long weak ones in turn: then it looks at all.
func (o overlap) strongest(t *tree, best *bid, found *key) {
	better := func(b bid) bool { return o.c.before(b, *best) || b == *best && t.compare(*found) < 0 }
	if t == nil || t.last < o.want.port || !better(t.strongest) {
		return
	}
	if o.rivals(t.key) {
		bids := []bid{t.holder}
		if t.holder.id() == o.id {
			bids = o.c.waiting[t.key]
		}
		for _, b := range bids {
			if better(b) {
				*best, *found = b, t.key
			}
		}
	}
	first, second := t.left, t.right
	if t.port > o.want.lastPort() {
		second = nil
	}
	if first == nil || second != nil && o.c.before(second.strongest, first.strongest) {
		first, second = second, first
	}
	o.strongest(first, best, found)
	o.strongest(second, best, found)
}

// hidden finds a node port of another Service that the claim would hide at a node port address.
func (o overlap) hidden() (k key, found bool) {
	beside := o.want.nodePort()
	held, k := o.c.ranges.nodePorts[beside.place()], beside
	k.end = 0
	for i, _ := slices.BinarySearch(held, beside.port); i < len(held) && held[i] <= beside.lastPort(); i++ {
		k.port = held[i]
		if o.c.holders[k].id() != o.id {
			return k, true
		}
	}
	return k, false
}

// block notes to what a Service lost a claim because of a range, or that it did not.
func (c *Claims) block(is blockedKey, to key, lost bool) {
	r := &c.ranges
	before, was := r.blocked[is]
	if was == lost && (!lost || before == to) {
		return
	}
	if was {
		remove(r.losers, before, is)
		delete(r.blocked, is)
	}
	if lost {
		r.blocked[is] = to
		insert(r.losers, to, is)
	}
	if is.isNodePort() && is.end != 0 {
		if lost {
			remove(c.beside.served, is.key, is.id)
		} else {
			insert(c.beside.served, is.key, is.id)
		}
	}
	c.note(is.key)
}

// noteRange notes that a key came (1) or went (-1). A place has a tree while it has ranges.
func (c *Claims) noteRange(k key, more int) {
	r, at := &c.ranges, k.place()
	if k.end != 0 {
		switch r.count[at] += more; {
		case r.count[at] == 0:
			delete(r.count, at)
			delete(r.at, at)
		case r.at[at] == nil:
			r.at[at] = singlesAt(c, at)
		}
	}
	c.note(k)
}

// note writes into the tree of a place what the register knows about a key. A place without ranges costs nothing.
func (c *Claims) note(k key) {
	if at := k.place(); c.ranges.count[at] > 0 && (k.end != 0 || !k.isNodePort()) {
		c.ranges.at[at] = c.ranges.at[at].remove(k).insert(c.node(k))
	}
}

// node returns what a tree has about a key; nil: nobody asks for it. Those that stand beside node ports do so together, and are
// equally strong: a node port is stronger.
func (c *Claims) node(k key) *tree {
	n := &tree{key: k, of: c, holder: c.holders[k]}
	n.served = n.holder
	if k.isNodePort() {
		n.holder, n.served = anybody(c.beside.ids[k]), anybody(c.beside.served[k])
	} else if _, lost := c.ranges.blocked[blockedKey{n.holder.id(), k}]; lost {
		n.served = nobody
	}
	if n.holder == nobody {
		return nil
	}
	return n
}

// anybody returns the bid of any of the Services that stand beside a node port.
func anybody(ids map[uint32]struct{}) bid {
	for id := range ids {
		return newBid(id, rankExternalIP)
	}
	return nobody
}

// singlesAt collects the single ports at an address that Services hold.
func singlesAt(c *Claims, place key) (t *tree) {
	if place.isNodePort() {
		return nil
	}
	seen := map[key]bool{}
	for id := range c.servicesAt(place.addr) {
		sorted := c.claimants[id].claims
		i, _ := slices.BinarySearchFunc(sorted, key{addr: place.addr}, func(c claim, k key) int { return c.key.compare(k) })
		for ; i < len(sorted) && sorted[i].addr == place.addr; i++ {
			k := sorted[i].key
			if _, taken := c.holders[k]; taken && !seen[k] && k.end == 0 && k.place() == place {
				seen[k], t = true, t.insert(c.node(k))
			}
		}
	}
	return t
}

// servicesAt yields the Services that may have a claim at an address. Several Services have the same cluster IP only by
// mistake: then it yields all.
func (c *Claims) servicesAt(addr [16]byte) func(func(uint32) bool) {
	return func(yield func(uint32) bool) {
		external := c.beside.at[addr]
		owners := c.kept.clusterIPs[addr]
		if owners.n > 1 {
			for id := range c.claimants {
				if !yield(uint32(id)) {
					return
				}
			}
			return
		}
		if _, both := external[owners.sum]; owners.n == 1 && !both && !yield(owners.sum) {
			return
		}
		maps.Keys(external)(yield)
	}
}
