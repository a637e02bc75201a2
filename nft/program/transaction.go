package program

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/rule"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// LayoutComment is the comment of our tables. Its number changes whenever the numbers in affinity entries get another
// meaning, while the map looks the same. A table with another number is deleted and made again, and clients lose
// affinity. If the type of the map's key changes, the number can stay: then only the map is replaced.
const LayoutComment = "verdict layout 1"

// A table can have an owner, which is a netlink socket (NFT_TABLE_F_OWNER, kernel 5.12). No other socket can change the
// table, and "nft flush ruleset" leaves it out. When the socket closes, the kernel deletes the table. With
// NFT_TABLE_F_PERSIST (kernel 6.9), it keeps the table: from then on any process can change it, and a socket becomes its
// owner by adding it again with both flags.
const (
	OwnerFlag   = 0x2
	PersistFlag = 0x4
)

// flagsText is the flags of a table in nft syntax.
func flagsText(flags uint32) string {
	switch flags {
	case 0:
		return ""
	case OwnerFlag | PersistFlag:
		return "flags owner, persist; "
	case PersistFlag:
		return "flags persist; "
	}
	return fmt.Sprintf("flags %#x; ", flags)
}

// Cursor is the first addition of a transaction that is not written yet.
type Cursor struct {
	Family  int // index into Families
	Set     SetID
	Element int
}

// Split separates the operations on base chains from the other operations.
func (t *Transaction) Split() (unhooked, hooked []Operation) {
	bases := map[string]bool{}
	for _, o := range t.Before {
		if o.Chain != nil && o.Chain.Base != nil {
			bases[o.Name] = true
		}
		if onChain := o.Kind == AddChain || o.Kind == AddRule; onChain && bases[o.Name] {
			hooked = append(hooked, o)
		} else {
			unhooked = append(unhooked, o)
		}
	}
	return unhooked, hooked
}

// More reports whether there are more additions, and moves the cursor to the first of them.
func (t *Transaction) More(at *Cursor) bool {
	for ; at.Family < len(t.Changes); at.Family, at.Set = at.Family+1, 0 {
		for ; at.Set < SetCount; at.Set, at.Element = at.Set+1, 0 {
			if at.Element < len(t.Changes[at.Family][at.Set].Add) {
				return true
			}
		}
	}
	return false
}

// KeyOnly is an element to be deleted: its data does not matter.
func (t *Transaction) KeyOnly(key []byte, intervalEnd bool) Element {
	start := t.Mark()
	t.Arena = append(t.Arena, key...)
	return Element{Offset: start, KeyLen: uint8(len(key)), IntervalEnd: intervalEnd}
}

// Concerns reports whether the transaction changes a family's table.
func (t *Transaction) Concerns(f Family) bool {
	of := func(o Operation) bool { return o.Family == f }
	return slices.ContainsFunc(t.Before, of) || slices.ContainsFunc(t.After, of) ||
		slices.ContainsFunc(t.Changes[f.Index()][:], func(c ElementChanges) bool { return len(c.Add)+len(c.Delete) > 0 })
}

// Transaction is a set of changes to both tables. The kernel makes all of them at once, or none. A transaction prints
// itself in nft syntax.
type Transaction struct {
	Builder
	// Before and after are the changes to tables, chains, rules and sets. Those before the changes of elements create
	// objects, and those after delete objects that the elements referred to.
	Before, After []Operation
	Changes       [2][SetCount]ElementChanges
}

// ElementChanges are the changes to one set. Deletions are written first, because the kernel refuses an element whose
// key still exists.
type ElementChanges struct {
	Delete, Add []Element
}

type operationKind uint8

const (
	AddTable operationKind = iota
	DeleteTable
	AddChain
	DeleteChain
	FlushRules // of the whole table
	AddRule
	AddSet
	DeleteSet
	FlushSet
	AddFlowtable    // or devices to it
	DeleteFlowtable // or devices of it
)

// Operation is one change that is not an element.
type Operation struct {
	Kind   operationKind
	Family Family
	Table  string // "": TableName
	Name   string // chain or set; of AddTable the comment, "": LayoutComment
	Flags  uint32 // of AddTable
	Chain  *Chain
	Rule   rule.Rule
	Set    *Set
	ID     SetID

	Devices []string // of a flowtable that are added or deleted; empty: the flowtable itself
	Mapping bool     // the set to flush or delete is a map
}

func (o *Operation) TableName() string { return cmp.Or(o.Table, TableName) }

func (o *Operation) Comment() string { return cmp.Or(o.Name, LayoutComment) }

// String is the operation in nft syntax.
func (o Operation) String() string {
	where := o.Family.String() + " " + o.TableName()
	switch o.Kind {
	case AddTable:
		return "add table " + where + ` { comment "` + o.Comment() + `"; ` + flagsText(o.Flags) + "}"
	case DeleteTable:
		return "delete table " + where
	case AddChain:
		if o.Chain.Base != nil {
			return "add chain " + where + " " + o.Name + " { " + o.Chain.Base.Header() + " }"
		}
		return "add chain " + where + " " + o.Name
	case DeleteChain:
		return "delete chain " + where + " " + o.Name
	case FlushRules:
		if o.Name != "" {
			return "flush chain " + where + " " + o.Name
		}
		return "flush table " + where
	case AddRule:
		return "add rule " + where + " " + o.Name + " " + o.Rule.String()
	case AddSet:
		declaration := strings.Join(o.Set.Declaration(), "; ")
		return "add " + SetKeyword(o.Set.IsMap()) + " " + where + " " + o.Name + " { " + declaration + "; }"
	case DeleteSet:
		return "delete " + SetKeyword(o.Mapping) + " " + where + " " + o.Name
	case FlushSet:
		return "flush " + SetKeyword(o.Mapping) + " " + where + " " + o.Name
	case AddFlowtable, DeleteFlowtable:
		return o.flowtableText(where)
	}
	return "unknown operation"
}

func SetKeyword(mapping bool) string {
	if mapping {
		return "map"
	}
	return "set"
}

// Empty reports whether the transaction changes nothing.
func (t *Transaction) Empty() bool {
	a, d := t.Elements()
	return a+d+len(t.Before)+len(t.After) == 0
}

// Elements counts the elements that the transaction adds and deletes.
func (t *Transaction) Elements() (added, deleted int) {
	for f := range t.Changes {
		for i := range t.Changes[f] {
			added += len(t.Changes[f][i].Add)
			deleted += len(t.Changes[f][i].Delete)
		}
	}
	return added, deleted
}

// Counts counts them by their kind.
func (t *Transaction) Counts() (c serviceport.Counts) {
	for f := range t.Changes {
		for id := range SetCount {
			c[id.Kind()] += int32(len(t.Changes[f][id].Add) + len(t.Changes[f][id].Delete))
		}
	}
	return c
}

// String prints the transaction as a script for "nft -f", one line for each change, in the order of the batch.
func (t *Transaction) String() string {
	return t.Print(noNote)
}

func noNote(Family, SetID, *Element, []byte) string { return "" }

// Print does the same, with a note behind each element that is no range of addresses.
func (t *Transaction) Print(note func(f Family, id SetID, e *Element, arena []byte) string) string {
	var b strings.Builder
	for _, o := range t.Before {
		fmt.Fprintln(&b, o)
	}
	for _, verb := range []string{"delete", "add"} {
		for _, f := range Families() {
			for id := range SetCount {
				for _, line := range t.elementLines(verb, f, id, math.MaxInt, note) {
					fmt.Fprintln(&b, line)
				}
			}
		}
	}
	for _, o := range t.After {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// Head returns a function that prints the first changes of elements: in each family and set, those that are deleted before those
// that are added. The function keeps a small transaction in memory, and of a large one only what it prints.
func (t *Transaction) Head(most int) (lines func() []string) {
	if added, deleted := t.Elements(); added+deleted > most {
		t = t.excerpt(most)
	}
	return func() (lines []string) {
		for _, f := range Families() {
			for id := range SetCount {
				lines = append(lines, t.elementLines("delete", f, id, most-len(lines), noNote)...)
				lines = append(lines, t.elementLines("add", f, id, most-len(lines), noNote)...)
			}
		}
		return lines
	}
}

// excerpt copies the first changes of each set.
func (t *Transaction) excerpt(most int) *Transaction {
	var out Transaction
	first := func(list []Element) []Element {
		list = slices.Clone(list[:min(len(list), most)])
		for i := range list {
			e := &list[i]
			at := out.Mark()
			out.Arena = append(out.Arena, t.Arena[e.Offset:][:int(e.KeyLen)+int(e.DataLen)]...)
			e.Offset = at
		}
		return list
	}
	for f := range t.Changes {
		for id := range t.Changes[f] {
			c := &t.Changes[f][id]
			out.Changes[f][id] = ElementChanges{Delete: first(c.Delete), Add: first(c.Add)}
		}
	}
	return &out
}

// elementLines prints the first deletions or additions of a set. It leaves out the stamp, which is in each transaction.
func (t *Transaction) elementLines(
	verb string, f Family, id SetID, most int, note func(Family, SetID, *Element, []byte) string,
) (lines []string) {
	c := &t.Changes[f.Index()][id]
	list := c.Add
	if verb == "delete" {
		list = c.Delete
	}
	if id == Generation || len(list) == 0 {
		return nil
	}
	defs := Program{Family: f}.Sets()
	d := &defs[id]
	for i, text := range ElementTexts(d, list[:min(len(list), most)], t.Arena) {
		behind := ""
		if !d.Interval {
			behind = note(f, id, &list[i], t.Arena)
		}
		lines = append(lines, fmt.Sprintf("%s element %s %s %s { %s }%s", verb, f, TableName, d.Name, text, behind))
	}
	return lines
}

// ElementTexts prints elements of one set. The two elements of a range become one prefix.
func ElementTexts(d *Set, list []Element, arena []byte) []string {
	var texts []string
	for i, e := range list {
		switch {
		case e.IntervalEnd:
		case d.Interval:
			end := lastBefore(list, i, arena)
			texts = append(texts, PrefixText(e.Key(arena), end))
		default:
			texts = append(texts, e.Text(d, arena))
		}
	}
	return texts
}

// lastBefore is the last address of the range that starts at element i: the one before the end element that follows, or
// the highest address of the family if no end element follows.
func lastBefore(list []Element, i int, arena []byte) []byte {
	if i+1 < len(list) && list[i+1].IntervalEnd {
		end := slices.Clone(list[i+1].Key(arena))
		for j := len(end) - 1; j >= 0; j-- {
			end[j]--
			if end[j] != 0xff {
				break
			}
		}
		return end
	}
	return slices.Repeat([]byte{0xff}, int(list[i].KeyLen))
}

func (t *Transaction) Do(o Operation) { t.Before = append(t.Before, o) }

// Reset empties the transaction and keeps its memory.
func (t *Transaction) Reset() {
	t.Arena, t.Before, t.After = t.Arena[:0], t.Before[:0], t.After[:0]
	for f := range t.Changes {
		for id := range t.Changes[f] {
			c := &t.Changes[f][id]
			c.Add, c.Delete = c.Add[:0], c.Delete[:0]
		}
	}
}

// Element writes a key and data into the arena; nil: no data.
func (t *Transaction) Element(label string, key, data func(*Builder)) Element {
	start := t.Mark()
	key(&t.Builder)
	e := Element{Offset: start, KeyLen: t.Since(start), Label: label}
	if data != nil {
		start = t.Mark()
		data(&t.Builder)
		e.DataLen = t.Since(start)
	}
	return e
}

// Writer adds the changes of one family's table to a transaction.
type Writer struct {
	*Transaction
	Family Family
}

// For writes changes of one family's table to the transaction.
func (t *Transaction) For(f Family) Writer { return Writer{t, f} }

// NewWriter begins a transaction of its own.
func NewWriter(f Family) Writer { return Writer{&Transaction{}, f} }

func (w Writer) changes(id SetID) *ElementChanges { return &w.Changes[w.Family.Index()][id] }

func (w Writer) Insert(id SetID, e Element) { w.changes(id).Add = append(w.changes(id).Add, e) }

func (w Writer) Remove(id SetID, e Element) { w.changes(id).Delete = append(w.changes(id).Delete, e) }

func (w Writer) Do(o Operation) {
	o.Family = w.Family
	w.Transaction.Do(o)
}

func (w Writer) DoAfterwards(o Operation) {
	o.Family = w.Family
	w.After = append(w.After, o)
}

// AddChain creates a chain with its rules.
func (w Writer) AddChain(c Chain) { w.AddChains([]Chain{c}) }

// AddChains creates chains, and then their rules, which may refer to other chains.
func (w Writer) AddChains(chains []Chain) {
	for _, c := range chains {
		w.Do(Operation{Kind: AddChain, Name: c.Name, Chain: &c})
	}
	for _, c := range chains {
		w.AddRules(c)
	}
}

func (w Writer) AddRules(c Chain) {
	for _, r := range c.Rules {
		w.Do(Operation{Kind: AddRule, Name: c.Name, Rule: r})
	}
}

// Sort sorts the changes of a set by their keys.
func (w Writer) Sort(id SetID) {
	c := w.changes(id)
	for _, list := range [][]Element{c.Add, c.Delete} {
		slices.SortStableFunc(list, func(a, b Element) int { return bytes.Compare(a.Key(w.Arena), b.Key(w.Arena)) })
	}
}
