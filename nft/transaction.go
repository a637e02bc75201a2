package nft

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Transaction is a set of changes to both tables. The kernel makes all of them at once, or none. A transaction prints
// itself in nft syntax.
type Transaction struct {
	builder
	// before and after are the changes to tables, chains, rules and sets. Those before the changes of elements create
	// objects, and those after delete objects that the elements referred to.
	before, after []operation
	elements      [2][setCount]elementChanges
	// unread: the next transaction is made of the whole mirror, and this one is thrown away. So the elements of service
	// ports are not even built.
	unread bool
}

// elementChanges are the changes to one set. Deletions are written first, because the kernel refuses an element whose
// key still exists.
type elementChanges struct {
	del, add []element
}

type operationKind uint8

const (
	opAddTable operationKind = iota
	opDeleteTable
	opAddChain
	opDeleteChain
	opFlushRules // of the whole table
	opAddRule
	opAddSet
	opDeleteSet
	opFlushSet
)

// operation is one change that is not an element.
type operation struct {
	kind   operationKind
	family Family
	table  string // "": TableName
	name   string // chain or set; of opAddTable the comment, "": layoutComment
	flags  uint32 // of opAddTable
	chain  *chainDef
	rule   rule
	set    *setDef
	id     setID

	mapping bool // the set to flush or delete is a map
}

func (o *operation) tableName() string { return cmp.Or(o.table, TableName) }

func (o *operation) comment() string { return cmp.Or(o.name, layoutComment) }

// String is the operation in nft syntax.
func (o operation) String() string {
	where := o.family.String() + " " + o.tableName()
	switch o.kind {
	case opAddTable:
		return "add table " + where + ` { comment "` + o.comment() + `"; ` + flagsText(o.flags) + "}"
	case opDeleteTable:
		return "delete table " + where
	case opAddChain:
		if o.chain.base != nil {
			return "add chain " + where + " " + o.name + " { " + o.chain.base.header() + " }"
		}
		return "add chain " + where + " " + o.name
	case opDeleteChain:
		return "delete chain " + where + " " + o.name
	case opFlushRules:
		if o.name != "" {
			return "flush chain " + where + " " + o.name
		}
		return "flush table " + where
	case opAddRule:
		return "add rule " + where + " " + o.name + " " + o.rule.String()
	case opAddSet:
		declaration := strings.Join(o.set.declaration(), "; ")
		return "add " + setKeyword(o.set.isMap()) + " " + where + " " + o.name + " { " + declaration + "; }"
	case opDeleteSet:
		return "delete " + setKeyword(o.mapping) + " " + where + " " + o.name
	case opFlushSet:
		return "flush " + setKeyword(o.mapping) + " " + where + " " + o.name
	}
	return "unknown operation"
}

func setKeyword(mapping bool) string {
	if mapping {
		return "map"
	}
	return "set"
}

// Empty reports whether the transaction changes nothing.
func (t *Transaction) Empty() bool {
	a, d := t.Elements()
	return a+d+len(t.before)+len(t.after) == 0
}

// Elements counts the elements that the transaction adds and deletes.
func (t *Transaction) Elements() (added, deleted int) {
	for f := range t.elements {
		for i := range t.elements[f] {
			added += len(t.elements[f][i].add)
			deleted += len(t.elements[f][i].del)
		}
	}
	return added, deleted
}

// String prints the transaction as a script for "nft -f", one line for each change, in the order of the batch.
func (t *Transaction) String() string {
	var b strings.Builder
	for _, o := range t.before {
		fmt.Fprintln(&b, o)
	}
	t.printElements(&b, "delete", func(c elementChanges) []element { return c.del })
	t.printElements(&b, "add", func(c elementChanges) []element { return c.add })
	for _, o := range t.after {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// head prints the first changes of elements: in each family and set, those that are deleted before those that are added.
func (t *Transaction) head(most int) (lines []string) {
	for _, f := range Families() {
		defs := program{family: f}.sets()
		for id := range defs {
			c := &t.elements[f.index()][id]
			for _, part := range []struct {
				verb string
				list []element
			}{{"delete", c.del}, {"add", c.add}} {
				if setID(id) == idGeneration { // in each transaction
					continue
				}
				part.list = part.list[:min(len(part.list), most-len(lines))]
				for _, text := range elementTexts(&defs[id], part.list, t.arena) {
					lines = append(lines, fmt.Sprintf("%s element %s %s %s { %s }", part.verb, f, TableName, defs[id].name, text))
				}
			}
		}
	}
	return lines
}

func (t *Transaction) printElements(b *strings.Builder, verb string, pick func(elementChanges) []element) {
	for _, f := range Families() {
		defs := program{family: f}.sets()
		for id := range defs {
			if setID(id) == idGeneration {
				continue // in each transaction
			}
			list := pick(t.elements[f.index()][id])
			for _, text := range elementTexts(&defs[id], list, t.arena) {
				fmt.Fprintf(b, "%s element %s %s %s { %s }\n", verb, f, TableName, defs[id].name, text)
			}
		}
	}
}

// elementTexts prints elements of one set. The two elements of a range become one prefix.
func elementTexts(d *setDef, list []element, arena []byte) []string {
	var texts []string
	for i, e := range list {
		switch {
		case e.intervalEnd:
		case d.interval:
			end := lastBefore(list, i, arena)
			texts = append(texts, prefixText(e.keyBytes(arena), end))
		default:
			texts = append(texts, e.text(d, arena))
		}
	}
	return texts
}

// lastBefore is the last address of the range that starts at element i: the one before the end element that follows, or
// the highest address of the family if no end element follows.
func lastBefore(list []element, i int, arena []byte) []byte {
	if i+1 < len(list) && list[i+1].intervalEnd {
		end := slices.Clone(list[i+1].keyBytes(arena))
		for j := len(end) - 1; j >= 0; j-- {
			end[j]--
			if end[j] != 0xff {
				break
			}
		}
		return end
	}
	return slices.Repeat([]byte{0xff}, int(list[i].key))
}

func (t *Transaction) operation(o operation) { t.before = append(t.before, o) }

func (t *Transaction) afterwards(o operation) { t.after = append(t.after, o) }

func (t *Transaction) add(f Family, id setID, e element) {
	c := &t.elements[f.index()][id]
	c.add = append(c.add, e)
}

func (t *Transaction) del(f Family, id setID, e element) {
	c := &t.elements[f.index()][id]
	c.del = append(c.del, e)
}

// addChain creates a chain with its rules.
func (t *Transaction) addChain(f Family, c chainDef) {
	t.operation(operation{kind: opAddChain, family: f, name: c.name, chain: &c})
	for _, r := range c.rules {
		t.operation(operation{kind: opAddRule, family: f, name: c.name, rule: r})
	}
}

// reserve makes room for the elements of a set, so that the list does not grow in steps.
func (t *Transaction) reserve(f Family, id setID, n int) {
	c := &t.elements[f.index()][id]
	c.add = slices.Grow(c.add, n)
}

// reset empties the transaction and keeps its memory.
func (t *Transaction) reset() {
	t.arena, t.before, t.after, t.unread = t.arena[:0], t.before[:0], t.after[:0], false
	for f := range t.elements {
		for id := range t.elements[f] {
			c := &t.elements[f][id]
			c.add, c.del = c.add[:0], c.del[:0]
		}
	}
}
