package nft

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"strings"
)

// stamp says which engine wrote a table last, and how often it did. The set "generation" holds it as its only element.
// Each transaction deletes the stamp that the engine wrote before and adds the next one, so the kernel refuses the
// transaction if anyone has replaced the contents of the table: another process, or "nft -f" with a saved ruleset. Then
// the engine's numbers of pools may belong to other service ports, and an update would reach the wrong ones.
type stamp struct{ instance, generation uint32 }

// errReplaced means that the table does not have the engine's stamp.
var errReplaced = errors.New("another process has replaced the contents of the table")

// newInstance is the number of an engine. It has no meaning apart from being different.
func newInstance() uint32 { return rand.Uint32() | 1 }

func (s stamp) next(instance uint32) stamp {
	return stamp{instance: instance, generation: s.generation + 1}
}

func (tb *table) stampElement(t *Transaction, s stamp, label string) element {
	return t.element(label, func(b *builder) { b.word(s.instance); b.word(s.generation) }, nil)
}

// stampAll adds the next stamp of each table that the transaction changes, or of all tables if the engine did not know
// what they have. Where a transaction writes a whole table, it has emptied the set already.
func (e *Engine) stampAll(t *Transaction) {
	for _, tb := range e.active {
		full := e.whole.has(tb.family)
		tb.coming = tb.stamp
		if !full && !e.rebuild && !t.changes(tb.family) {
			continue
		}
		tb.coming = tb.stamp.next(e.instance)
		if !full {
			t.del(tb.family, idGeneration, tb.stampElement(t, tb.stamp, ""))
		}
		t.add(tb.family, idGeneration, tb.stampElement(t, tb.coming, tb.fingerprint()))
	}
}

// keepStamps notes that the kernel has the stamps of the latest transaction.
func (e *Engine) keepStamps() {
	for _, tb := range e.active {
		tb.stamp = tb.coming
	}
}

// hasStamp reports whether the kernel's table has a stamp.
func (e *Engine) hasStamp(tb *table, s stamp) (bool, error) {
	t := &Transaction{}
	key := tb.stampElement(t, s, "")
	_, found, err := e.conn.lookup(tb.family, setGeneration, key.keyBytes(t.arena))
	return found, err
}

// changes reports whether the transaction changes a family's table.
func (t *Transaction) changes(f Family) bool {
	for _, list := range [][]operation{t.before, t.after} {
		for i := range list {
			if list[i].family == f {
				return true
			}
		}
	}
	for id := range t.elements[f.index()] {
		if c := &t.elements[f.index()][id]; len(c.add)+len(c.del) > 0 {
			return true
		}
	}
	return false
}

// fingerprint names the rules and sets of a table, apart from elements and from which classes and groups of prefix lengths
// there are, and the options of the program. It tells a reader of the listing whether two nodes, or two versions, run the
// same program.
func (tb *table) fingerprint() string {
	p := tb.program()
	p.lengths = 0
	if tb.printed.text == "" || tb.printed.of != p {
		tb.printed.of, tb.printed.text = p, p.fingerprint(tb.defs[:])
	}
	return tb.printed.text
}

func (p program) fingerprint(defs []setDef) string {
	h := fnv.New64a()
	p.lengths = groupOf(8) // one stands for all
	chains := p.chains()
	for _, m := range []Method{Random, InTurn, SourceHash} {
		d := draw{m, exactDraws + 1}
		chains = append(chains, p.tokenDrawChain(d), p.tokenDrawChain(draw{m, 1}))
		for _, c := range []class{{draw: d}, {draw: d, affinity: 1e9}, {draw: d, affinity: 1e9, local: true}, {draw: draw{m, 1}}} {
			chains = append(chains, p.classChain(c))
		}
	}
	for _, d := range defs {
		d.size = 0 // a set keeps the size with which it was made
		fmt.Fprintln(h, d.name, d.declaration())
	}
	for _, c := range chains {
		fmt.Fprintln(h, c.name, c.shape())
		for _, r := range c.rules {
			_, _ = io.WriteString(h, r.String()+"\n") // cannot fail
		}
	}
	return strings.TrimSpace(fmt.Sprintf("program %016x %s", h.Sum64(), p.options()))
}

// readBack finds out whether a transaction was applied: the kernel has the next stamp, or it has not.
func (e *Engine) readBack(t *Transaction, r *Result, cause error) error {
	for _, tb := range e.active {
		if !t.changes(tb.family) {
			continue
		}
		applied, err := e.hasStamp(tb, tb.coming)
		if err != nil {
			err = fmt.Errorf("find out whether the transaction was applied: %w; the next one compares everything with the kernel", err)
			return errors.Join(cause, err)
		}
		if !applied {
			r.Outcome = Rejected
			return cause
		}
		break // the kernel applies all or nothing
	}
	r.Outcome = Applied
	return nil
}
