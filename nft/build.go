package nft

import (
	"cmp"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// layoutComment is the comment of our tables. Its number changes whenever the numbers in affinity entries get another
// meaning, while the map looks the same. A table with another number is deleted and made again, and clients lose
// affinity. If the type of the map's key changes, the number can stay: then only the map is replaced.
const layoutComment = "verdict layout 1"

// build writes the whole table from the mirror. If the kernel has a table of the same layout, the same transaction
// replaces everything in it except affinity entries.
func (tb *table) build(t *Transaction, found existing) {
	keep := tb.keeps(found)
	if found.table && !keep {
		t.operation(operation{kind: opDeleteTable, family: tb.family})
	}
	if tb.noteFlags(found); !keep {
		t.operation(operation{kind: opAddTable, family: tb.family, flags: tb.flags()})
	}
	if keep {
		tb.tearDown(t, found)
	}
	tb.addSets(t, keep, found)
	tb.buildChains(t)
	tb.buildElements(t)
}

// keeps reports whether the kernel's table can stay.
func (tb *table) keeps(found existing) bool {
	return found.table && found.sameLayout && !tb.mustBeMadeAgain(found)
}

// addSets adds the sets that are not there, and tunes those that others have tuned.
func (tb *table) addSets(t *Transaction, keep bool, found existing) {
	for id := range tb.defs {
		if d := &tb.defs[id]; !keep || !found.hasSet(d) || found.retuned(d) {
			t.operation(operation{kind: opAddSet, family: tb.family, name: d.name, set: d, id: setID(id)})
		}
	}
}

// tearDown empties the sets and chains that stay, and deletes the others. It replaces no set or chain that can stay.
// The gap would last nanoseconds, but a client that connects in a loop would see it: while a packet is in a chain, the
// kernel may switch to the next generation, in which a replaced set has no elements and a replaced base chain has no
// rules. In a set that stays, each lookup finds the old element or the new one.
func (tb *table) tearDown(t *Transaction, found existing) {
	f := tb.family
	t.operation(operation{kind: opFlushRules, family: f})
	tb.dropSets(t, found, func(d *setDef) bool { return !d.dynamic })
	chains := tb.wantedChains()
	for _, name := range slices.Sorted(maps.Keys(found.chains)) {
		if c, ok := chains[name]; !ok || c.shape() != found.chains[name] {
			t.operation(operation{kind: opDeleteChain, family: f, name: name})
		}
	}
}

// dropSets deletes the sets that cannot stay, and empties some that can.
func (tb *table) dropSets(t *Transaction, found existing, empty func(*setDef) bool) {
	wanted := map[string]*setDef{}
	for id := range tb.defs {
		wanted[tb.defs[id].name] = &tb.defs[id]
	}
	for _, name := range slices.Sorted(maps.Keys(found.sets)) {
		d, mapping := wanted[name], found.sets[name].flags&unix.NFT_SET_MAP != 0
		stays := d != nil && found.hasSet(d)
		if !stays || empty(d) {
			// A map is emptied before it is deleted, too: its elements keep chains in use, and before kernel 6.4 the
			// deletion of a map does not release them.
			t.operation(operation{kind: opFlushSet, family: tb.family, name: name, mapping: mapping})
		}
		if !stays {
			t.operation(operation{kind: opDeleteSet, family: tb.family, name: name, mapping: mapping})
		}
	}
}

// wantedChains are all chains of the table, by name.
func (tb *table) wantedChains() map[string]chainDef {
	list := map[string]chainDef{}
	for _, c := range tb.program().chains() {
		list[c.name] = c
	}
	for d := range tb.tokenDraws {
		list[d.tokenChain()] = tb.program().tokenDrawChain(d)
	}
	for c := range tb.classes.entries {
		list[c.chain()] = tb.program().classChain(c)
		if c.hashed() {
			list[c.hashTableChain()] = tb.program().hashTableChain(c.draw)
		}
	}
	return list
}

func (tb *table) buildChains(t *Transaction) {
	chains := tb.program().chains()
	for _, c := range chains {
		t.operation(operation{kind: opAddChain, family: tb.family, name: c.name, chain: &c})
	}
	for _, d := range slices.SortedFunc(maps.Keys(tb.tokenDraws), compareDraws) {
		t.addChain(tb.family, tb.program().tokenDrawChain(d))
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

// forgetSpares forgets the classes that no pool uses, the token chains that only these classes needed, and the chains of
// prefix lengths that no source range has.
func (tb *table) forgetSpares() {
	tb.recountLengths()
	tb.classes.collect(0)
	clear(tb.tokenDraws)
	for c := range tb.classes.entries {
		if c.affinity > 0 {
			tb.tokenDraws[c.draw] = true
		}
	}
}

// buildElements writes the elements of all service ports in the mirror, in order of the ports' numbers: two builds of
// the same state are equal.
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
	ports := slices.SortedFunc(maps.Values(tb.ports), func(a, b *port) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.name, b.name))
	})
	tb.reserve(t, ports)
	for _, p := range ports {
		tb.buildPort(t, p)
	}
	tb.rewriteHashTables(ports)
	tb.buildGuards(t)
}

// reserve makes room for the elements of service ports.
func (tb *table) reserve(t *Transaction, ports []*port) {
	frontends, pools, slots := 0, 0, 0
	for _, p := range ports {
		frontends += len(p.frontends)
		for i := range p.pools {
			slots += len(p.pools[i].members)
			if p.pools[i].classID != 0 {
				pools++
			}
		}
	}
	t.reserve(tb.family, idServices, frontends)
	t.reserve(tb.family, idPools, pools)
	t.reserve(tb.family, idEndpoints, slots)
	const perElement = 24 // bytes of the key and data of most
	t.arena = slices.Grow(t.arena, perElement*(frontends+pools+slots))
}

func (tb *table) buildPort(t *Transaction, p *port) {
	for _, e := range tb.frontendElements(t, p, p.frontends, p.sources) {
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
			t.add(tb.family, id, tb.slotElement(t, p, pl, m.slot, m.addr(), pl.class.affinity > 0))
		}
	}
}
