package nft

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// memoryKernel is the part of nf_tables that the engine uses, in memory: both tables with their chains, rules, sets and
// elements. It applies the transaction that a batch carries, and does not read the bytes of the batch. Unlike
// nf_tables, it does not check the meaning of rules: loops between chains, expressions that a hook does not allow,
// types of registers.
type memoryKernel struct {
	mu       sync.Mutex // String and List may be called from any goroutine
	tables   [2]*memoryTable
	commits  uint32
	undo     []func() // takes back the present batch, last change first
	record   func(text string)
	recorded *Transaction // the latest one; a large transaction comes in several batches
}

type memoryTable struct {
	chains map[string]*memoryChain
	sets   map[string]*memorySet
}

type memoryChain struct {
	base  *baseDef
	rules []rule
}

type memorySet struct {
	def      *setDef
	elements map[memoryKey]memoryElement
}

// memoryKey identifies an element within its set. As in the kernel, it is the key, and whether the
// element is the end of a range.
type memoryKey struct {
	bytes       string
	intervalEnd bool
}

// memoryElement is an element with an arena of its own.
type memoryElement struct {
	element
	arena []byte
}

func newMemoryElement(e element, arena []byte) memoryElement {
	own := slices.Clone(arena[e.offset : e.offset+uint32(e.key)+uint32(e.data)])
	e.offset = 0
	return memoryElement{element: e, arena: own}
}

func (e memoryElement) id() memoryKey {
	return memoryKey{bytes: string(e.arena[:e.key]), intervalEnd: e.intervalEnd}
}

// compare orders elements by key. Where one range ends and the next one begins, the end comes first.
func (e memoryElement) compare(o memoryElement) int {
	first := func(e memoryElement) int {
		if e.intervalEnd {
			return 0
		}
		return 1
	}
	return cmp.Or(bytes.Compare(e.arena[:e.key], o.arena[:o.key]), cmp.Compare(first(e), first(o)))
}

func (s *memorySet) sorted() []memoryElement {
	return slices.SortedFunc(maps.Values(s.elements), memoryElement.compare)
}

// send applies a batch. If it refuses a message, it takes all changes of the batch back.
func (k *memoryKernel) send(b *batch) (Outcome, *nlmsg.Ack, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.undo = nil
	for i, m := range b.messages {
		if i > 0 && m.operation != nil && m.operation == b.messages[i-1].operation {
			continue // a rule and its anonymous set are several messages, but one operation
		}
		if why := k.message(b, m); why != nil {
			return k.refuse(why)
		}
	}
	k.commits++
	if k.record != nil && k.recorded != b.tx {
		k.recorded = b.tx
		k.record(b.tx.String())
	}
	return Applied, nil, nil
}

func (k *memoryKernel) refuse(why *nlmsg.Ack) (Outcome, *nlmsg.Ack, error) {
	for _, back := range slices.Backward(k.undo) {
		back()
	}
	return Rejected, why, why.Err()
}

// message applies one message.
func (k *memoryKernel) message(b *batch, m messageInfo) *nlmsg.Ack {
	if m.operation != nil {
		if errno := k.operation(m.operation); errno != 0 {
			return &nlmsg.Ack{Seq: m.seq, Errno: errno}
		}
		return nil
	}
	s := k.set(m.family, setNames[m.set])
	if s == nil {
		return &nlmsg.Ack{Seq: m.seq, Errno: unix.ENOENT}
	}
	for i, e := range m.elements(b.tx) {
		if errno := k.element(m, s, newMemoryElement(e, b.tx.arena)); errno != 0 {
			return &nlmsg.Ack{Seq: m.seq, Errno: errno, Offset: b.offsetOf(m, i)}
		}
	}
	return nil
}

// set finds a set; nil: there is no set of that name.
func (k *memoryKernel) set(f Family, name string) *memorySet {
	if tb := k.tables[f.index()]; tb != nil {
		return tb.sets[name]
	}
	return nil
}

func (k *memoryKernel) operation(o *operation) unix.Errno {
	at := &k.tables[o.family.index()]
	if o.kind == opAddTable {
		if *at == nil {
			assign(k, at, &memoryTable{chains: map[string]*memoryChain{}, sets: map[string]*memorySet{}})
		}
		return 0
	}
	tb := *at
	if tb == nil {
		return unix.ENOENT
	}
	switch o.kind {
	case opDeleteTable:
		assign(k, at, nil)
	case opAddChain:
		return k.addChain(tb, o)
	case opDeleteChain:
		return k.deleteChain(tb, o.name)
	case opFlushRules:
		for name, c := range tb.chains {
			if o.name == "" || o.name == name {
				assign(k, &c.rules, nil)
			}
		}
	case opAddRule:
		return k.addRule(tb, o)
	case opAddSet:
		return k.addSet(tb, o.set)
	case opDeleteSet:
		return k.deleteSet(tb, o.name)
	case opFlushSet:
		return k.flushSet(tb, o.name)
	}
	return 0
}

// addChain accepts a chain that exists already, if it has the same hook.
func (k *memoryKernel) addChain(tb *memoryTable, o *operation) unix.Errno {
	is := tb.chains[o.name]
	switch {
	case is == nil:
		put(k, tb.chains, o.name, &memoryChain{base: o.chain.base})
	case o.chain.base != nil && o.chain.shape() != (chainDef{base: is.base}).shape():
		return unix.EOPNOTSUPP
	}
	return 0
}

func (k *memoryKernel) deleteChain(tb *memoryTable, name string) unix.Errno {
	if tb.chains[name] == nil {
		return unix.ENOENT
	}
	for other, c := range tb.chains {
		for _, r := range c.rules {
			if _, chains := r.references(); other != name && slices.Contains(chains, name) {
				return unix.EBUSY
			}
		}
	}
	for _, s := range tb.sets {
		for _, e := range s.elements {
			if s.def.leadsToChains() && e.label == name {
				return unix.EBUSY
			}
		}
	}
	take(k, tb.chains, name)
	return 0
}

func (k *memoryKernel) addRule(tb *memoryTable, o *operation) unix.Errno {
	c := tb.chains[o.name]
	if c == nil {
		return unix.ENOENT
	}
	sets, chains := o.rule.references()
	for _, name := range sets {
		if tb.sets[name] == nil {
			return unix.ENOENT
		}
	}
	for _, name := range chains {
		if tb.chains[name] == nil {
			return unix.ENOENT
		}
	}
	assign(k, &c.rules, append(slices.Clip(c.rules), o.rule))
	return 0
}

// references are the names of the sets and chains that a rule uses.
func (r rule) references() (sets, chains []string) {
	for _, e := range r.exprs() {
		switch e := e.(type) {
		case *expr.Lookup:
			if e.SetID != protocolsSetID { // that one is created together with the rule
				sets = append(sets, e.SetName)
			}
		case *expr.Dynset:
			sets = append(sets, e.SetName)
		case *expr.Verdict:
			if e.Chain != "" {
				chains = append(chains, e.Chain)
			}
		}
	}
	return sets, chains
}

// addSet accepts a set that exists already, if it has the same shape.
func (k *memoryKernel) addSet(tb *memoryTable, d *setDef) unix.Errno {
	switch is := tb.sets[d.name]; {
	case is == nil:
		put(k, tb.sets, d.name, &memorySet{def: d, elements: map[memoryKey]memoryElement{}})
	case is.def.shape() != d.shape():
		return unix.EEXIST
	}
	return 0
}

func (k *memoryKernel) deleteSet(tb *memoryTable, name string) unix.Errno {
	if tb.sets[name] == nil {
		return unix.ENOENT
	}
	for _, c := range tb.chains {
		for _, r := range c.rules {
			if sets, _ := r.references(); slices.Contains(sets, name) {
				return unix.EBUSY
			}
		}
	}
	take(k, tb.sets, name)
	return 0
}

func (k *memoryKernel) flushSet(tb *memoryTable, name string) unix.Errno {
	s := tb.sets[name]
	if s == nil {
		return unix.ENOENT
	}
	assign(k, &s.elements, map[memoryKey]memoryElement{})
	return 0
}

// element adds or deletes one element. It accepts an element that exists already, if it has the same data.
func (k *memoryKernel) element(m messageInfo, s *memorySet, e memoryElement) unix.Errno {
	is, exists := s.elements[e.id()]
	switch {
	case m.deletion && !exists:
		return unix.ENOENT
	case m.deletion:
		take(k, s.elements, e.id())
		return 0
	case exists && !bytes.Equal(s.data(is), s.data(e)):
		return unix.EEXIST
	case exists:
		return 0
	case s.def.leadsToChains() && k.tables[m.family.index()].chains[e.label] == nil:
		return unix.ENOENT
	case s.def.interval && s.insideRange(e):
		return unix.EEXIST
	}
	put(k, s.elements, e.id(), e)
	return 0
}

// data are the data of an element; for a verdict, the name of the chain.
func (s *memorySet) data(e memoryElement) []byte {
	if s.def.leadsToChains() {
		return []byte(e.label)
	}
	return e.dataBytes(e.arena)
}

// leadsToChains reports whether the elements of a map are verdicts.
func (d *setDef) leadsToChains() bool { return d.isMap() && d.data[0].name == typeVerdict.name }

// insideRange reports whether a new start or end of a range is inside another range. The start of a range is
// added before its end.
func (s *memorySet) insideRange(e memoryElement) bool {
	list := s.sorted()
	at, _ := slices.BinarySearchFunc(list, e, memoryElement.compare)
	afterStart := at > 0 && !list[at-1].intervalEnd
	beforeEnd := at < len(list) && list[at].intervalEnd
	if e.intervalEnd {
		return !afterStart || beforeEnd
	}
	return afterStart
}

// assign, put and take change the tables, and note how to take the change back.
func assign[T any](k *memoryKernel, at *T, value T) {
	before := *at
	k.undo = append(k.undo, func() { *at = before })
	*at = value
}

func put[K comparable, V any](k *memoryKernel, m map[K]V, key K, value V) {
	k.undo = append(k.undo, func() { delete(m, key) })
	m[key] = value
}

func take[K comparable, V any](k *memoryKernel, m map[K]V, key K) {
	before := m[key]
	k.undo = append(k.undo, func() { m[key] = before })
	delete(m, key)
}

func (k *memoryKernel) capacity() int { return math.MaxInt }

func (k *memoryKernel) close() error { return nil }

func (k *memoryKernel) lookup(f Family, set string, key []byte) (e foundElement, found bool, err error) {
	n, err := k.lookupRow(f, set, [][]byte{key}, func(it foundElement) { e = it.clone() })
	return e, n > 0, err
}

func (k *memoryKernel) lookupRow(f Family, set string, keys [][]byte, each func(foundElement)) (found int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.set(f, set)
	for _, key := range keys {
		if s == nil {
			break
		}
		e, ok := s.elements[memoryKey{bytes: string(key)}]
		if !ok {
			break
		}
		each(s.found(e))
		found++
	}
	return found, nil
}

func (k *memoryKernel) dumpElements(f Family, set string, each func(foundElement)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.set(f, set)
	if s == nil {
		return unix.ENOENT
	}
	for _, e := range s.sorted() {
		each(s.found(e))
	}
	return nil
}

// memoryReader reads a set at once.
type memoryReader struct{ elements []foundElement }

func (k *memoryKernel) readSet(f Family, set string) (setReader, error) {
	l := &memoryReader{}
	err := k.dumpElements(f, set, func(e foundElement) { l.elements = append(l.elements, e) })
	return l, err
}

func (l *memoryReader) next(each func(foundElement)) (more bool, err error) {
	for _, e := range l.elements {
		each(e)
	}
	return false, nil
}

func (l *memoryReader) close() error { return nil }

func (s *memorySet) found(e memoryElement) foundElement {
	return foundElement{
		key: e.keyBytes(e.arena), data: s.data(e), comment: e.label, intervalEnd: e.intervalEnd,
	}
}

func (k *memoryKernel) generation() (uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.commits, nil
}

func (k *memoryKernel) survey(f Family) (existing, error) {
	is, err := k.surveyChains(f)
	if err != nil || !is.table {
		return is, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	is.rules, is.sets = map[string]rulesShape{}, map[string]setShape{}
	for name, c := range k.tables[f.index()].chains {
		if len(c.rules) > 0 {
			is.rules[name] = rulesOf(f, c.rules)
		}
	}
	for name, s := range k.tables[f.index()].sets {
		is.sets[name] = s.def.shape()
	}
	return is, nil
}

func (k *memoryKernel) surveyTable(f Family) (existing, error) { return k.survey(f) }
func (k *memoryKernel) surveySets(f Family) (existing, error)  { return k.survey(f) }

func (k *memoryKernel) surveyChains(f Family) (existing, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	tb := k.tables[f.index()]
	if tb == nil {
		return existing{}, nil
	}
	is := existing{table: true, sameLayout: true, chains: map[string]chainShape{}, dropping: map[string]bool{}}
	for name, c := range tb.chains {
		is.chains[name] = chainDef{base: c.base}.shape()
	}
	return is, nil
}

// classNumber is the number of the class, for an element of the dispatch map.
func (e memoryElement) classNumber() uint32 { return binary.NativeEndian.Uint32(e.arena) >> poolBits }
