package nft

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Mend undoes what another process did to the rules of the tables while no Verdict ran. It does not wait for the objects
// of the cluster, because a rule that drops packets may be what keeps them away: the first Apply would never come. It
// touches no elements, and only tables that this version wrote with the rules of their fixed chains. Everything else is
// up to the first Apply. Call it before the first Set. It names the chains that it changed, and tables that slept.
func (e *Engine) Mend() (chains []string, err error) {
	t := &Transaction{}
	for _, tb := range e.active {
		changed, err := e.mendTable(t, tb)
		if err != nil {
			return nil, fmt.Errorf("read table %s %s: %w", tb.family, TableName, err)
		}
		for _, name := range changed {
			chains = append(chains, fmt.Sprintf("%s %s %s", tb.family, TableName, name))
		}
	}
	if !t.Empty() {
		err = e.sendApart(t)
	}
	if err == nil {
		err = e.setFlags(&Result{})
	}
	if err != nil {
		return nil, fmt.Errorf("undo changes of the chains %s: %w", strings.Join(chains, ", "), err)
	}
	return chains, nil
}

// mendEarly is a Repair before the first Set. The engine does not know yet what the tables are to have, and the first
// Apply compares everything.
func (e *Engine) mendEarly() (Result, error) {
	_, err := e.Mend()
	r := Result{Text: func() string { return "" }}
	if err != nil {
		r.Outcome = Rejected
	}
	return r, err
}

// mendTable writes the fixed chains of a table that are not as they should be, and deletes chains of others that have a
// hook. A table that sleeps is woken afterwards.
func (e *Engine) mendTable(t *Transaction, tb *table) (changed []string, err error) {
	was, err := e.conn.survey(tb.family)
	if err != nil || !tb.keeps(was) {
		return nil, err
	}
	p, known, err := e.formerProgram(tb, was)
	if err != nil || !known {
		return nil, err
	}
	fixed := map[string]chainDef{}
	var rewritten []chainDef
	for _, c := range p.chains() {
		if fixed[c.name] = c; !tb.hasChain(was, &c) {
			rewritten, changed = append(rewritten, c), append(changed, c.name)
		}
	}
	foreign := func(name string) bool {
		_, ours := fixed[name]
		return !ours && was.chains[name] != (chainShape{})
	}
	for _, name := range slices.Sorted(maps.Keys(was.chains)) {
		if foreign(name) {
			changed = append(changed, name)
		}
	}
	tb.clearChains(t, was, fixed, rewritten, foreign)
	tb.writeChains(t, rewritten)
	if tb.reflag, tb.nextFlags = was.asleep(), was.flags&^unix.NFT_TABLE_F_DORMANT; tb.reflag {
		changed = append(changed, "(put to sleep)")
	}
	return changed, nil
}

// formerProgram returns the program that an earlier process wrote. It is known if it is one of this version, and all sets
// are there.
func (e *Engine) formerProgram(tb *table, was existing) (p program, known bool, err error) {
	for id := range tb.defs {
		if !was.hasSet(&tb.defs[id]) {
			return p, false, nil
		}
	}
	p, err = identify(e.conn, tb.family)
	p.lengths = was.lengths(tb.family)
	if errors.Is(err, ErrUnknownProgram) {
		return p, false, nil
	}
	return p, err == nil, err
}
