package inspect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// table reads the elements of one table. What the elements mean is in decode.go.
type table struct {
	kernel kernel.Reader
	family program.Family
	defs   [program.SetCount]program.Set
	loaded map[program.SetID]map[string]kernel.Found // sets that were read as a whole, by key
	ranges map[program.SetID][]addrRange             // sets of ranges, as far as they were read
	pools  map[uint32][]EndpointStatus               // by number, those that were read since load; nil before
	once   bool                                      // a set is read once, with what dump says about that
	looks  *[]Look                                   // what look-ups find; nil: nobody asks
}

func newTable(k kernel.Reader, f program.Family) *table {
	return &table{
		kernel: k, family: f, defs: program.Program{Family: f}.Sets(), loaded: map[program.SetID]map[string]kernel.Found{},
		ranges: map[program.SetID][]addrRange{},
	}
}

// dumpTries is how often a set is read that changes all the time.
const dumpTries = 5

// each reads a set once. A set that does not exist is empty: the table is of an earlier version, or another program deleted
// the set.
func (t *table) each(set program.SetID, each func(kernel.Found)) error {
	err := t.kernel.DumpElements(t.family, set, each)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("list set %s: %w", set, err)
	}
	return nil
}

// dump reads a set. While the kernel resizes the hash table of a large set, some time after a change, a dump leaves out elements
// and repeats others. So dump reads the set until two readings in a row find the same number of elements.
func (t *table) dump(set program.SetID) (elements map[string]kernel.Found, err error) {
	for try, before := 0, -1; try < dumpTries && len(elements) != before; try++ {
		before, elements = len(elements), map[string]kernel.Found{}
		if err := t.each(set, func(e kernel.Found) { elements[string(e.Key)] = e.Clone() }); err != nil {
			return nil, err
		}
	}
	return elements, nil
}

// load reads sets, so that look-ups in them need not ask the kernel.
func (t *table) load(sets ...program.SetID) (err error) {
	t.pools = map[uint32][]EndpointStatus{}
	for _, set := range sets {
		if t.loaded[set], err = t.dump(set); err != nil {
			return err
		}
	}
	return nil
}

// find looks an element up.
func (t *table) find(set program.SetID, key []byte) (e kernel.Found, found bool, err error) {
	if elements, loaded := t.loaded[set]; loaded {
		e, found = elements[string(key)]
		return e, found, nil
	}
	if e, found, err = t.kernel.Lookup(t.family, set, key); err != nil {
		return e, false, fmt.Errorf("look up an element of @%s: %w", set, err)
	}
	if found {
		t.note(set, key, &e)
	}
	return e, found, nil
}

// findAll looks elements up, and leaves out those that were deleted a moment ago.
func (t *table) findAll(set program.SetID, keys [][]byte, each func(kernel.Found)) error {
	for len(keys) > 0 {
		row := keys[:min(kernel.RowLength, len(keys))]
		found, err := t.kernel.LookupRow(t.family, set, row, func(e kernel.Found) {
			t.note(set, e.Key, &e)
			each(e)
		})
		if err != nil {
			return fmt.Errorf("look up elements of @%s: %w", set, err)
		}
		keys = keys[min(found+1, len(row)):]
	}
	return nil
}

// elements hands over the element with a key. Without a key, it hands over all elements.
func (t *table) elements(set program.SetID, key []byte, each func(kernel.Found)) error {
	if key != nil {
		e, found, err := t.find(set, key)
		if found {
			each(e)
		}
		return err
	}
	if t.once {
		return t.each(set, each)
	}
	all, err := t.dump(set)
	for _, e := range all {
		each(e)
	}
	return err
}

// noting returns what the look-ups of a reading find.
func (t *table) noting(read func() error) (looks []Look, err error) {
	t.looks = &looks
	defer func() { t.looks = nil }()
	return looks, read()
}

func (t *table) note(set program.SetID, key []byte, e *kernel.Found) {
	if t.looks != nil {
		*t.looks = append(*t.looks, t.found(set, key, e))
	}
}

// found describes an element that was looked up.
func (t *table) found(set program.SetID, key []byte, e *kernel.Found) Look {
	d := &t.defs[set]
	number, _ := e.Number()
	return Look{
		Set: set, Key: d.KeyText(key), Element: elementText(d, *e), Found: true, Label: e.Comment, Number: number, Expires: e.Expires,
	}
}

// look looks a key up. It returns what a reader sees of the element, and its data.
func (t *table) look(set program.SetID, key []byte) (Look, []byte, error) {
	text := t.defs[set].KeyText(key)
	if t.defs[set].Interval {
		l, err := t.lookRange(set, key, text)
		return l, nil, err
	}
	e, found, err := t.find(set, key)
	if !found {
		return Look{Set: set, Key: text, Element: text}, nil, err
	}
	return t.found(set, key, &e), e.Data, nil
}

func (t *table) lookRange(set program.SetID, key []byte, text string) (Look, error) {
	l := Look{Set: set, Key: text, Element: text}
	ranges, err := t.readRanges(set)
	a, _ := netip.AddrFromSlice(key)
	for _, r := range ranges {
		if r.first.Compare(a) <= 0 && a.Compare(r.last) <= 0 {
			l.Found, l.Element = true, r.String()
		}
	}
	return l, err
}

// elementText is the element as nft lists it, without the values of counters and timeouts.
func elementText(d *program.Set, found kernel.Found) string {
	var b program.Builder
	return found.Element(d, &b).Text(d, b.Arena)
}

// words is a key of numbers.
func words(list ...uint32) []byte {
	var b program.Builder
	for _, n := range list {
		b.Word(n)
	}
	return b.Arena
}

// addrRange is a range of addresses.
type addrRange struct{ first, last netip.Addr }

// readRanges reads a set of ranges, once. Such sets are small: they belong to the globals.
func (t *table) readRanges(set program.SetID) ([]addrRange, error) {
	if list, ok := t.ranges[set]; ok {
		return list, nil
	}
	var starts, ends []netip.Addr
	err := t.each(set, func(e kernel.Found) {
		a, _ := netip.AddrFromSlice(e.Key)
		if e.IntervalEnd {
			ends = append(ends, a)
		} else {
			starts = append(starts, a)
		}
	})
	if err != nil {
		return nil, err
	}
	t.ranges[set] = pairRanges(starts, ends, t.family)
	return t.ranges[set], nil
}

// pairRanges joins the two elements of each range. The last range may have no end.
func pairRanges(starts, ends []netip.Addr, f program.Family) (out []addrRange) {
	slices.SortFunc(starts, netip.Addr.Compare)
	slices.SortFunc(ends, netip.Addr.Compare)
	ends = slices.DeleteFunc(ends, func(a netip.Addr) bool { return a.IsUnspecified() && a.BitLen() == 8*f.AddrLen() })
	for i, first := range starts {
		r := addrRange{first, program.LastAddr(netip.PrefixFrom(first, 0))}
		if i < len(ends) {
			r.last = ends[i].Prev()
		}
		out = append(out, r)
	}
	return out
}

func (r addrRange) String() string { return program.PrefixText(r.first.AsSlice(), r.last.AsSlice()) }
