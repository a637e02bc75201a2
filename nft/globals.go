package nft

import (
	"net/netip"
	"slices"
)

// setGlobals takes note of what is wanted. The difference is written once for each transaction, so that several changes
// between two applies do no harm.
func (tb *table) setGlobals(g Globals) { tb.globals, tb.globalsChanged = g, true }

// writeGlobals writes the difference between the sets that belong to no service port. It does not look at what the
// rules depend on: a change of those makes the engine write the whole table again.
func (tb *table) writeGlobals(t *Transaction) {
	if !tb.globalsChanged {
		return
	}
	old, want := tb.written, tb.globals
	tb.written, tb.globalsChanged = want, false
	tb.updateRanges(t, idServiceCIDRs, old.ServiceCIDRs, want.ServiceCIDRs)
	tb.updateRanges(t, idPodCIDRs, old.PodCIDRs, want.PodCIDRs)
	diffElements(t, tb.family, tb.nodePortAddresses(t, old), tb.nodePortAddresses(t, want))
}

func (tb *table) nodePortAddresses(t *Transaction, g Globals) []placed {
	var out []placed
	for _, a := range g.NodePortAddresses {
		if FamilyOf(a) == tb.family {
			out = append(out, placed{idNodePortAddresses, t.element("", func(b *builder) { b.addr(a) }, nil)})
		}
	}
	slices.SortFunc(out, func(a, b placed) int { return comparePlaced(a, b, t.arena) })
	return slices.CompactFunc(out, func(a, b placed) bool { return comparePlaced(a, b, t.arena) == 0 })
}

// updateRanges replaces the prefixes of a set with a single key. Such a set keeps each range as two elements.
func (tb *table) updateRanges(t *Transaction, id setID, old, want []netip.Prefix) {
	before, after := withoutNested(old, tb.family), withoutNested(want, tb.family)
	for _, p := range before {
		if !slices.Contains(after, p) {
			tb.rangeElements(t, p, func(e element) { t.del(tb.family, id, e) })
		}
	}
	for _, p := range after {
		if !slices.Contains(before, p) {
			tb.rangeElements(t, p, func(e element) { t.add(tb.family, id, e) })
		}
	}
}

// rangeElements gives the start of a range and the first address behind it; a range up to the last address has no end.
func (tb *table) rangeElements(t *Transaction, p netip.Prefix, put func(element)) {
	put(t.element("", func(b *builder) { b.addr(p.Addr()) }, nil))
	behind := lastAddr(p).Next()
	if !behind.IsValid() {
		return
	}
	end := t.element("", func(b *builder) { b.addr(behind) }, nil)
	end.intervalEnd = true
	put(end)
}
