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

// each calls do for the claims of other Services that overlap with the claim and are not equal. Either of the two is a range, and
// the claim does not stand beside node ports. The cost depends on how many keys overlap.
func (o overlap) each(do func(bid, key)) {
	k := o.want.key
	o.c.ranges.at[k.place()].overlapping(k, func(at key) {
		if at == k || at.end == 0 && k.end == 0 {
			return
		}
		for _, b := range o.bids(at) {
			if b.id() != o.id {
				do(b, at)
			}
		}
	})
}

// bids are the claims to a key that count: that of the holder, and the others if the holder is the Service itself. All that stand
// beside node ports count, because they do so together.
func (o overlap) bids(at key) []bid {
	if at.isNodePort() {
		var list []bid
		for id := range o.c.beside.ids[at] {
			list = append(list, newBid(id, rankExternalIP))
		}
		return list
	}
	if holder := o.c.holders[at]; holder.id() != o.id {
		return []bid{holder}
	}
	return o.c.waiting[at]
}

// replanWeaker has the Services planned again whose weaker claims overlap with one that came and are served, or that were lost to
// one that went.
func (o overlap) replanWeaker(came bool) {
	own := newBid(o.id, o.want.rank)
	if o.c.holders[o.want.key] != own && own.rank() == rankExternalIP {
		return // whatever is weaker is weaker than the holder, too
	}
	o.each(func(other bid, at key) {
		if !o.c.before(own, other) {
			return
		}
		is := blockedKey{other.id(), at}
		to, lost := o.c.ranges.blocked[is]
		if came && !lost || !came && lost && to == o.want.key {
			delete(o.c.ranges.blocked, is)
			o.c.replan = append(o.c.replan, other.id())
		}
	})
}

// stronger finds the strongest claim of another Service that overlaps with the claim, if it has precedence.
func (o overlap) stronger() (holder uint32, k key, found bool) {
	best := newBid(o.id, o.want.rank)
	o.each(func(other bid, at key) {
		if o.c.before(other, best) {
			best, k, found = other, at, true
		}
	})
	return best.id(), k, found
}

// lose notes to what a Service lost a claim because of a range, or that it did not.
func (o overlap) lose(to key, lost bool) {
	if is := (blockedKey{o.id, o.want.key}); lost {
		o.c.ranges.blocked[is] = to
	} else {
		delete(o.c.ranges.blocked, is)
	}
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

// noteRange records whether any Service asks for a key, where ranges are. A place without ranges costs nothing.
func (c *Claims) noteRange(k key, wanted bool) {
	r, at := &c.ranges, k.place()
	if k.end != 0 && wanted {
		if r.count[at]++; r.count[at] == 1 {
			r.at[at] = singlesAt(c, at)
		}
	}
	switch {
	case r.count[at] == 0 || k.end == 0 && k.isNodePort():
		return
	case wanted:
		r.at[at] = r.at[at].insert(k)
		return
	}
	r.at[at] = r.at[at].remove(k)
	if k.end != 0 {
		if r.count[at]--; r.count[at] == 0 {
			delete(r.count, at)
			delete(r.at, at)
		}
	}
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
				seen[k], t = true, t.insert(k)
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
