package claims

import (
	"bytes"
	"slices"
)

// beside is what the register knows about external addresses that may be node port addresses. A frontend at such an
// address hides the node port with the same number from its clients. So the frontend is served only as long as no other
// Service has that node port. Frontends of several Services may stand beside the same free node port, because each
// has an address of its own: k3s's servicelb writes node addresses into the status of every load balancer.
//
// A user writes any address into the external IPs, also one of another node, whose addresses nobody here knows. So each
// external IP stands beside a node port. A load balancer IP does so only at the node port addresses of this node.
type beside struct {
	addrs map[[16]byte]bool                // the node port addresses
	at    map[[16]byte]map[uint32]struct{} // the Services with an external address, by that address
	ids   map[key]map[uint32]struct{}      // the Services that stand beside a node port
	// served has those of them with a range, unless they lost it because a node port of another Service is in it.
	served map[key]map[uint32]struct{}
}

// hidesNodePort reports whether a claim is that of an external address at which node ports answer, here or at another
// node.
func (b *beside) hidesNodePort(want claim) bool {
	return want.rank == rankExternalIP && !want.isNodePort() || want.rank == rankLoadBalancer && b.addrs[want.addr]
}

// index records at which external addresses a Service is. Both lists are sorted.
func (b *beside) index(id uint32, before, after []claim) {
	old, current := addrsOf(before, isExternal), addrsOf(after, isExternal)
	for _, a := range without(old, current) {
		remove(b.at, a, id)
	}
	for _, a := range current {
		insert(b.at, a, id)
	}
}

func isExternal(c *claim) bool { return c.rank > rankNodePort && !c.isNodePort() }

// addrsOf lists the addresses of some frontends in a sorted list of claims, each once and sorted.
func addrsOf(sorted []claim, is func(*claim) bool) (out [][16]byte) {
	for i := range sorted {
		want := &sorted[i]
		if is(want) && (len(out) == 0 || out[len(out)-1] != want.addr) {
			out = append(out, want.addr)
		}
	}
	return out
}

// without returns the addresses of a list that are not in another one. Both are sorted.
func without(list, other [][16]byte) [][16]byte {
	return slices.DeleteFunc(slices.Clone(list), func(a [16]byte) bool {
		_, found := slices.BinarySearchFunc(other, a, func(x, y [16]byte) int { return bytes.Compare(x[:], y[:]) })
		return found
	})
}

func insert[K, V comparable](sets map[K]map[V]struct{}, k K, v V) {
	if sets[k] == nil {
		sets[k] = map[V]struct{}{}
	}
	sets[k][v] = struct{}{}
}

func remove[K, V comparable](sets map[K]map[V]struct{}, k K, v V) {
	delete(sets[k], v)
	if len(sets[k]) == 0 {
		delete(sets, k)
	}
}
