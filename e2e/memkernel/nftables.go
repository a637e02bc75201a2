package memkernel

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// NFTables is the part of nf_tables that the engine uses, in memory: both tables with their chains, rules, sets and
// elements. It has no packets, so the affinity map stays empty. It applies the transaction that a batch carries, and does not read the bytes of the batch. Unlike
// nf_tables, it does not check the meaning of rules: loops between chains, expressions that a hook does not allow,
// types of registers.
type NFTables struct {
	mu      sync.Mutex // String and List may be called from any goroutine
	tables  [2]*table
	commits uint32
	undo    []func() // takes back the present batch, last change first
}

type table struct {
	chains map[string]*chain
	sets   map[string]*set
	// flowtable is nil or the one of the program.
	flowtable *kernel.FoundFlowtable
}

type chain struct {
	base  *program.Base
	rules []rule.Rule
}

type set struct {
	def      *program.Set
	elements map[elementKey]element
}

// elementKey identifies an element within its set. As in the kernel, it is the key, and whether the
// element is the end of a range.
type elementKey struct {
	bytes       string
	intervalEnd bool
}

// element is an element with an arena of its own.
type element struct {
	program.Element
	arena []byte
}

func newElement(e program.Element, arena []byte) element {
	own := slices.Clone(arena[e.Offset : e.Offset+uint32(e.KeyLen)+uint32(e.DataLen)])
	e.Offset = 0
	return element{Element: e, arena: own}
}

func (e element) id() elementKey {
	return elementKey{bytes: string(e.arena[:e.KeyLen]), intervalEnd: e.IntervalEnd}
}

// compare orders elements by key. Where one range ends and the next one begins, the end comes first.
func (e element) compare(o element) int {
	first := func(e element) int {
		if e.IntervalEnd {
			return 0
		}
		return 1
	}
	return cmp.Or(bytes.Compare(e.arena[:e.KeyLen], o.arena[:o.KeyLen]), cmp.Compare(first(e), first(o)))
}

func (s *set) sorted() []element {
	return slices.SortedFunc(maps.Values(s.elements), element.compare)
}

// Send applies a batch. If it refuses a message, it takes all changes of the batch back.
func (k *NFTables) Send(b *kernel.Batch) (kernel.Outcome, *nlmsg.Ack, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.undo = nil
	for i, m := range b.Messages {
		if i > 0 && m.Operation != nil && m.Operation == b.Messages[i-1].Operation {
			continue // a rule and its anonymous set are several messages, but one operation
		}
		if why := k.message(b, m); why != nil {
			return k.refuse(why)
		}
	}
	k.commits++
	return kernel.Applied, nil, nil
}

func (k *NFTables) refuse(why *nlmsg.Ack) (kernel.Outcome, *nlmsg.Ack, error) {
	for _, back := range slices.Backward(k.undo) {
		back()
	}
	return kernel.Rejected, why, why.Err()
}

// message applies one message.
func (k *NFTables) message(b *kernel.Batch, m kernel.MessageInfo) *nlmsg.Ack {
	if m.Operation != nil {
		if errno := k.operation(m.Operation); errno != 0 {
			return &nlmsg.Ack{Seq: m.Seq, Errno: errno}
		}
		return nil
	}
	s := k.set(m.Family, m.Set.Name())
	if s == nil {
		return &nlmsg.Ack{Seq: m.Seq, Errno: unix.ENOENT}
	}
	for i, e := range m.Elements(b.Tx) {
		if errno := k.element(m, s, newElement(e, b.Tx.Arena)); errno != 0 {
			return &nlmsg.Ack{Seq: m.Seq, Errno: errno, Offset: b.OffsetOf(m, i)}
		}
	}
	return nil
}

// set finds a set; nil: there is no set of that name.
func (k *NFTables) set(f program.Family, name string) *set {
	if tb := k.tables[f.Index()]; tb != nil {
		return tb.sets[name]
	}
	return nil
}

func (k *NFTables) operation(o *program.Operation) unix.Errno {
	at := &k.tables[o.Family.Index()]
	if o.Kind == program.AddTable {
		if *at == nil {
			assign(k, at, &table{chains: map[string]*chain{}, sets: map[string]*set{}})
		}
		return 0
	}
	tb := *at
	if tb == nil {
		return unix.ENOENT
	}
	if o.Kind == program.DeleteTable {
		assign(k, at, nil)
		return 0
	}
	return k.inTable(tb, o)
}

// inTable is for operations on what a table has.
func (k *NFTables) inTable(tb *table, o *program.Operation) unix.Errno {
	switch o.Kind {
	case program.AddChain:
		return k.addChain(tb, o)
	case program.DeleteChain:
		return k.deleteChain(tb, o.Name)
	case program.FlushRules:
		for name, c := range tb.chains {
			if o.Name == "" || o.Name == name {
				assign(k, &c.rules, nil)
			}
		}
	case program.AddRule:
		return k.addRule(tb, o)
	case program.AddSet:
		return k.addSet(tb, o.Set)
	case program.DeleteSet:
		return k.deleteSet(tb, o.Name)
	case program.FlushSet:
		return k.flushSet(tb, o.Name)
	case program.AddFlowtable, program.DeleteFlowtable:
		return k.changeFlowtable(tb, o)
	}
	return 0
}

// addChain accepts a chain that exists already, if it has the same hook.
func (k *NFTables) addChain(tb *table, o *program.Operation) unix.Errno {
	is := tb.chains[o.Name]
	switch {
	case is == nil:
		put(k, tb.chains, o.Name, &chain{base: o.Chain.Base})
	case o.Chain.Base != nil && o.Chain.Shape() != (program.Chain{Base: is.base}).Shape():
		return unix.EOPNOTSUPP
	}
	return 0
}

func (k *NFTables) deleteChain(tb *table, name string) unix.Errno {
	if tb.chains[name] == nil {
		return unix.ENOENT
	}
	for other, c := range tb.chains {
		for _, r := range c.rules {
			if _, chains := r.References(); other != name && slices.Contains(chains, name) {
				return unix.EBUSY
			}
		}
	}
	for _, s := range tb.sets {
		for _, e := range s.elements {
			if s.def.LeadsToChains() && e.Label == name {
				return unix.EBUSY
			}
		}
	}
	take(k, tb.chains, name)
	return 0
}

func (k *NFTables) addRule(tb *table, o *program.Operation) unix.Errno {
	c := tb.chains[o.Name]
	if c == nil {
		return unix.ENOENT
	}
	sets, chains := o.Rule.References()
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
	assign(k, &c.rules, append(slices.Clip(c.rules), o.Rule))
	return 0
}

// addSet accepts a set that exists already, if it has the same shape.
func (k *NFTables) addSet(tb *table, d *program.Set) unix.Errno {
	switch is := tb.sets[d.Name]; {
	case is == nil:
		put(k, tb.sets, d.Name, &set{def: d, elements: map[elementKey]element{}})
	case is.def.Shape() != d.Shape():
		return unix.EEXIST
	}
	return 0
}

func (k *NFTables) deleteSet(tb *table, name string) unix.Errno {
	if tb.sets[name] == nil {
		return unix.ENOENT
	}
	for _, c := range tb.chains {
		for _, r := range c.rules {
			if sets, _ := r.References(); slices.Contains(sets, name) {
				return unix.EBUSY
			}
		}
	}
	take(k, tb.sets, name)
	return 0
}

func (k *NFTables) flushSet(tb *table, name string) unix.Errno {
	s := tb.sets[name]
	if s == nil {
		return unix.ENOENT
	}
	assign(k, &s.elements, map[elementKey]element{})
	return 0
}

// element adds or deletes one element. It accepts an element that exists already, if it has the same data.
func (k *NFTables) element(m kernel.MessageInfo, s *set, e element) unix.Errno {
	is, exists := s.elements[e.id()]
	switch {
	case m.Deletion && !exists:
		return unix.ENOENT
	case m.Deletion:
		take(k, s.elements, e.id())
		return 0
	case exists && !bytes.Equal(s.data(is), s.data(e)):
		return unix.EEXIST
	case exists:
		return 0
	case s.def.LeadsToChains() && k.tables[m.Family.Index()].chains[e.Label] == nil:
		return unix.ENOENT
	case s.def.Interval && s.insideRange(e), s.def.Ports && s.overlaps(e):
		return unix.EEXIST
	}
	put(k, s.elements, e.id(), e)
	return 0
}

// data are the data of an element; for a verdict, the name of the chain.
func (s *set) data(e element) []byte {
	if s.def.LeadsToChains() {
		return []byte(e.Label)
	}
	return e.Data(e.arena)
}

// insideRange reports whether a new start or end of a range is inside another range. The start of a range is
// added before its end.
func (s *set) insideRange(e element) bool {
	list := s.sorted()
	at, _ := slices.BinarySearchFunc(list, e, element.compare)
	afterStart := at > 0 && !list[at-1].IntervalEnd
	beforeEnd := at < len(list) && list[at].IntervalEnd
	if e.IntervalEnd {
		return !afterStart || beforeEnd
	}
	return afterStart
}

// assign, put and take change the tables, and note how to take the change back.
func assign[T any](k *NFTables, at *T, value T) {
	before := *at
	k.undo = append(k.undo, func() { *at = before })
	*at = value
}

func put[K comparable, V any](k *NFTables, m map[K]V, key K, value V) {
	k.undo = append(k.undo, func() { delete(m, key) })
	m[key] = value
}

func take[K comparable, V any](k *NFTables, m map[K]V, key K) {
	before := m[key]
	k.undo = append(k.undo, func() { m[key] = before })
	delete(m, key)
}

func (k *NFTables) Capacity() int { return math.MaxInt }

func (k *NFTables) Close() error { return nil }

func (k *NFTables) Lookup(f program.Family, set program.SetID, key []byte) (e kernel.Found, found bool, err error) {
	n, err := k.LookupRow(f, set, [][]byte{key}, func(it kernel.Found) { e = it.Clone() })
	return e, n > 0, err
}

func (k *NFTables) LookupRow(f program.Family, set program.SetID, keys [][]byte, each func(kernel.Found)) (found int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.set(f, set.Name())
	for _, key := range keys {
		if s == nil {
			break
		}
		e, ok := s.find(key)
		if !ok {
			break
		}
		each(s.found(e))
		found++
	}
	return found, nil
}

// find finds an element; in a set of ranges, the one that has the first port of the key.
func (s *set) find(key []byte) (element, bool) {
	if !s.def.Ports {
		e, ok := s.elements[elementKey{bytes: string(key)}]
		return e, ok
	}
	for _, e := range s.elements {
		if rangeHas(e.Key(e.arena), key) {
			return e, true
		}
	}
	return element{}, false
}

// overlaps reports whether a new range overlaps with another one.
func (s *set) overlaps(e element) bool {
	if _, inside := s.find(e.Key(e.arena)); inside {
		return true
	}
	for _, other := range s.elements {
		if rangeHas(e.Key(e.arena), other.Key(other.arena)) {
			return true
		}
	}
	return false
}

func (k *NFTables) DumpElements(f program.Family, set program.SetID, each func(kernel.Found)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.set(f, set.Name())
	if s == nil {
		return unix.ENOENT
	}
	for _, e := range s.sorted() {
		each(s.found(e))
	}
	return nil
}

// reader reads a set at once.
type reader struct{ elements []kernel.Found }

func (k *NFTables) ReadSet(f program.Family, set program.SetID) (kernel.SetReader, error) {
	l := &reader{}
	err := k.DumpElements(f, set, func(e kernel.Found) { l.elements = append(l.elements, e) })
	return l, err
}

func (l *reader) Next(each func(kernel.Found)) (more bool, err error) {
	for _, e := range l.elements {
		each(e)
	}
	return false, nil
}

func (l *reader) Close() error { return nil }

func (s *set) found(e element) kernel.Found {
	return kernel.Found{
		Key: e.Key(e.arena), Data: s.data(e), Comment: e.Label, IntervalEnd: e.IntervalEnd,
	}
}

func (k *NFTables) Generation() (uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.commits, nil
}

func (k *NFTables) Survey(f program.Family) (kernel.Existing, error) {
	is, err := k.SurveyChains(f)
	if err != nil || !is.Table {
		return is, err
	}
	if is.Flowtables, err = k.Flowtables(f); err != nil {
		return is, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	is.Rules, is.Sets = map[string]rule.RulesShape{}, map[string]program.SetShape{}
	for name, c := range k.tables[f.Index()].chains {
		if len(c.rules) > 0 {
			is.Rules[name] = rule.RulesOf(f, c.rules)
		}
	}
	for name, s := range k.tables[f.Index()].sets {
		is.Sets[name] = s.def.Shape()
	}
	return is, nil
}

func (k *NFTables) SurveyTable(f program.Family) (kernel.Existing, error) { return k.Survey(f) }
func (k *NFTables) SurveySets(f program.Family) (kernel.Existing, error)  { return k.Survey(f) }

func (k *NFTables) SurveyChains(f program.Family) (kernel.Existing, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	tb := k.tables[f.Index()]
	if tb == nil {
		return kernel.Existing{}, nil
	}
	is := kernel.Existing{Table: true, SameLayout: true, Chains: map[string]program.ChainShape{}, Dropping: map[string]bool{}}
	for name, c := range tb.chains {
		is.Chains[name] = program.Chain{Base: c.base}.Shape()
	}
	return is, nil
}

// classNumber is the number of the class, for an element of the dispatch map.
func (e element) classNumber() uint32 {
	return binary.NativeEndian.Uint32(e.arena) >> program.PoolBits
}

// rangeHas reports whether a key, of a frontend or of a range, begins in a range. Each range is of one address and protocol.
func rangeHas(keyOfRange, key []byte) bool {
	n := len(keyOfRange) / 2
	return bytes.Compare(keyOfRange[:n], key[:n]) <= 0 && bytes.Compare(key[:n], keyOfRange[n:]) <= 0
}
