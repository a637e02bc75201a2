package nft

import (
	"maps"
	"slices"
)

// layoutComment stands on our tables. Its number changes whenever the meaning of affinity entries does (the split of
// the number, the key): a table with another number is deleted and made anew, with affinity lost.
const layoutComment = "verdict layout 1"

// existing is what an earlier process (or an earlier state of this one) left in one family.
type existing struct {
	table      bool
	sameLayout bool
	chains     []string
	sets       []string
}

// build writes the whole table as mirrored. Over a table of the same layout everything but the affinity map is
// replaced inside the same transaction, so packets meet the old rules or the new ones.
func (tb *table) build(t *Transaction, was existing) {
	f := tb.family
	keep := was.table && was.sameLayout
	switch {
	case keep:
		tb.tearDown(t, was)
	case was.table:
		t.operation(operation{kind: opDeleteTable, family: f})
		t.operation(operation{kind: opAddTable, family: f})
	default:
		t.operation(operation{kind: opAddTable, family: f})
	}
	for id := range tb.defs {
		d := &tb.defs[id]
		if keep && setID(id) == idAffinity && slices.Contains(was.sets, d.name) {
			continue
		}
		t.operation(operation{kind: opAddSet, family: f, name: d.name, set: d, id: setID(id)})
	}
	tb.buildChains(t)
	tb.buildElements(t)
}

// tearDown removes what is there. The dispatch map is emptied first: its elements hold on to chains until then
// (deleting the map itself releases them only since kernel 6.4).
func (tb *table) tearDown(t *Transaction, was existing) {
	f := tb.family
	t.operation(operation{kind: opFlushRules, family: f})
	if slices.Contains(was.sets, mapDispatch) {
		t.operation(operation{kind: opFlushSet, family: f, name: mapDispatch})
	}
	for _, c := range was.chains {
		t.operation(operation{kind: opDeleteChain, family: f, name: c})
	}
	for _, s := range was.sets {
		if s != mapAffinity {
			t.operation(operation{kind: opDeleteSet, family: f, name: s})
		}
	}
}

func (tb *table) buildChains(t *Transaction) {
	chains := tb.family.chains(tb.globals.program(tb.family))
	for _, c := range chains {
		t.operation(operation{kind: opAddChain, family: tb.family, name: c.name, chain: &c})
	}
	for _, d := range slices.SortedFunc(maps.Keys(tb.tokenDraws), compareDraws) {
		t.addChain(tb.family, tb.family.tokenDrawChain(d))
	}
	for _, id := range slices.Sorted(maps.Keys(tb.classes.byID)) {
		tb.addClass(t, tb.classes.byID[id], id)
	}
	for _, c := range chains {
		for _, r := range c.rules {
			t.operation(operation{kind: opAddRule, family: tb.family, name: c.name, rule: r})
		}
	}
}

// forgetSpares drops classes without a pool and the draws that only such classes needed.
func (tb *table) forgetSpares() {
	tb.classes.collect(0)
	clear(tb.tokenDraws)
	for c := range tb.classes.entries {
		if c.affinity > 0 {
			tb.tokenDraws[c.draw] = true
		}
	}
}

// buildElements writes all elements of the mirrored service ports, ports in order of their number so that two builds
// of the same state are equal.
func (tb *table) buildElements(t *Transaction) {
	tb.written, tb.globalsChanged = Globals{}, true
	clear(tb.clusterIPs.before)
	clear(tb.hairpin.before)
	for ip := range tb.clusterIPs.count {
		tb.clusterIPs.before[ip] = 0
	}
	for ip := range tb.hairpin.count {
		tb.hairpin.before[ip] = 0
	}
	ports := slices.SortedFunc(maps.Values(tb.ports), func(a, b *port) int { return int(a.number) - int(b.number) })
	for _, p := range ports {
		tb.buildPort(t, p)
	}
}

func (tb *table) buildPort(t *Transaction, p *port) {
	for _, e := range tb.frontendElements(t, p, p.frontends) {
		t.add(tb.family, e.set, e.element)
	}
	tb.writeTokens(t, p, nil)
	for i := range p.pools {
		pl := &p.pools[i]
		tb.writePool(t, p, pl, 0, pl.classID)
		id := idEndpoints
		if pl.class.affinity > 0 {
			id = idStickySlots
		}
		for _, m := range pl.members {
			t.add(tb.family, id, tb.slotElement(t, p, pl, m.slot, m.addr, pl.class.affinity > 0))
		}
	}
}

func (tb *table) chainCount() int {
	return len(tb.family.chains(tb.globals.program(tb.family))) + len(tb.classes.byID) + len(tb.tokenDraws)
}
