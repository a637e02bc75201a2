package claims

import (
	"maps"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// ranges is what the register knows about ranges of ports. A Service does not get a frontend that overlaps with a stronger
// claim of another Service, whether or not that Service gets it. So of two frontends that overlap, the kernel never sees
// both, and who gets one depends on the claims alone.
type ranges struct {
	at        map[key][]span   // the ranges at an address or among the node ports, by place
	nodePorts map[key][]uint16 // the node ports that Services hold, sorted, by place
}

func newRanges() ranges { return ranges{at: map[key][]span{}, nodePorts: map[key][]uint16{}} }

// span is a range that a Service asks for. One with the kind of a node port stands beside node ports.
type span struct {
	key
	bid bid
}

// place is the key without its ports.
func (k key) place() key { return key{addr: k.addr, protocol: k.protocol, kind: k.kind} }

func (k key) lastPort() uint16 { return max(k.port, k.end) }

// overlaps reports whether two keys of one place have a port in common.
func (k key) overlaps(o key) bool { return k.port <= o.lastPort() && o.port <= k.lastPort() }

// ports returns the port or the range of a key.
func (k key) ports() string { return state.PortsText(k.port, k.end) + "/" + k.protocol.String() }

// index records the range of a claim.
func (r *ranges) index(id uint32, want claim) {
	if at := want.place(); want.end != 0 {
		r.at[at] = append(r.at[at], span{want.key, newBid(id, want.rank)})
	}
}

func (r *ranges) forget(id uint32, given claim) {
	if given.end == 0 {
		return
	}
	at, own := given.place(), span{given.key, newBid(id, given.rank)}
	r.at[at] = slices.DeleteFunc(r.at[at], func(s span) bool { return s == own })
	if len(r.at[at]) == 0 {
		delete(r.at, at)
	}
}

// hold records whether a Service holds a node port.
func (r *ranges) hold(k key, held bool) {
	at := k.place()
	i, _ := slices.BinarySearch(r.nodePorts[at], k.port)
	if held {
		r.nodePorts[at] = slices.Insert(r.nodePorts[at], i, k.port)
	} else {
		r.nodePorts[at] = slices.Delete(r.nodePorts[at], i, i+1)
	}
}

// meet reports whether ranges of anybody are at the places of some claims.
func (r *ranges) meet(claims []claim) bool {
	return len(r.at) > 0 && slices.ContainsFunc(claims, func(c claim) bool { return len(r.at[c.place()]) > 0 })
}

// overlap finds what overlaps with a claim of a Service.
type overlap struct {
	c    *Claims
	id   uint32
	want claim
}

// each calls do for the claims of other Services that overlap with the claim, until it returns false. Either of the two is a
// range, and neither stands beside node ports. The cost depends on the ranges there and, for a range, on the Services at the
// address.
func (o overlap) each(do func(bid, key) bool) {
	k := o.want.key
	for _, s := range o.c.ranges.at[k.place()] {
		if s.bid.id() != o.id && s.overlaps(k) && !do(s.bid, s.key) {
			return
		}
	}
	if k.end == 0 || k.isNodePort() {
		return
	}
	for other := range o.services() {
		found := func(found claim) bool { return do(newBid(other, found.rank), found.key) }
		if other != o.id && !eachAt(o.c.claimants[other].claims, k, found) {
			return
		}
	}
}

// services yields the Services that may have a claim at the address. Several Services have the same cluster IP only by
// mistake: then it yields all.
func (o overlap) services() func(func(uint32) bool) {
	c, addr := o.c, o.want.addr
	others := c.kept.clusterIPs[addr]
	if slices.ContainsFunc(c.claimants[o.id].claims, func(own claim) bool { return own.addr == addr && own.rank == rankClusterIP }) {
		others = others.with(o.id, -1)
	}
	if others.n == 0 {
		return maps.Keys(c.beside.at[addr])
	}
	if others.n == 1 {
		return func(yield func(uint32) bool) {
			if _, external := c.beside.at[addr][others.sum]; !external && !yield(others.sum) {
				return
			}
			maps.Keys(c.beside.at[addr])(yield)
		}
	}
	return func(yield func(uint32) bool) {
		for other := range c.claimants {
			if !yield(uint32(other)) {
				return
			}
		}
	}
}

// replanWeaker has the Services planned again whose weaker claims overlap with one that came or went.
func (o overlap) replanWeaker() {
	if len(o.c.ranges.at) == 0 && o.want.end == 0 || o.want.besideNodePort() {
		return
	}
	own := newBid(o.id, o.want.rank)
	o.each(func(other bid, _ key) bool {
		if o.c.before(own, other) {
			o.c.replan = append(o.c.replan, other.id())
		}
		return true
	})
}

// stronger finds a claim of another Service that overlaps with the claim and has precedence.
func (o overlap) stronger() (holder uint32, k key, found bool) {
	own := newBid(o.id, o.want.rank)
	o.each(func(other bid, at key) bool {
		if o.c.before(other, own) {
			holder, k, found = other.id(), at, true
		}
		return !found
	})
	return holder, k, found
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

// eachAt calls each for the single ports in a sorted list of claims that overlap with a range, until it returns false.
func eachAt(sorted []claim, k key, each func(claim) bool) bool {
	first := key{addr: k.addr, port: k.port}
	i, _ := slices.BinarySearchFunc(sorted, first, func(c claim, k key) int { return c.key.compare(k) })
	for ; i < len(sorted) && sorted[i].addr == k.addr && sorted[i].port <= k.end; i++ {
		if found := sorted[i]; found.end == 0 && found.place() == k.place() && !each(found) {
			return false
		}
	}
	return true
}

// overlapsOwn reports whether a frontend overlaps with an earlier one of the same Service.
func (s *stripper) overlapsOwn(k key) (earlier key, found bool) {
	if len(s.claims.ranges.at[k.place()]) == 0 {
		return key{}, false
	}
	i := slices.IndexFunc(s.beside[k.place()], k.overlaps)
	if i < 0 {
		s.beside[k.place()] = append(s.beside[k.place()], k)
		return key{}, false
	}
	return s.beside[k.place()][i], true
}
