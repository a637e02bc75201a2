package nft

import (
	"net/netip"
	"slices"
)

// setGlobals notes the wanted globals. Each transaction writes the difference once, so several changes before one Apply
// do no harm.
func (tb *table) setGlobals(g Globals) { tb.globals, tb.globalsChanged = g, true }

// writeGlobals updates the sets that belong to no service port. It does not look at the globals that rules depend on:
// if those change, the engine writes the whole table.
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

// updateRanges replaces the prefixes in a set whose key is one range. In such a set each range is two elements.
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

// rangeElements makes the two elements of a range: its first address, and the first address after it. A range that
// includes the last address of the family has only the first one.
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
