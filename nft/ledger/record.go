package ledger

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// Record is one element of an owner, without its comment: that follows from the name of the owner.
type Record struct {
	Set   program.SetID
	End   bool // it closes a range in a set with a single key
	other bool // the kernel has the key with other data or another comment
	Key   []byte
	Data  []byte // of the map dispatch: the name of the chain
}

// Content is a list of elements, sorted by set and key, each once.
type Content interface {
	// At returns the element at a place, and the place of the next one. The first place is 0. At reports false behind the last
	// element. The bytes are valid until the next call.
	At(place int) (r Record, next int, ok bool)
	// A content may have a method Prefix(Content) int: how many of its first places, which are numbered from 0, are known to be equal
	// to those of another one.
}

// Records is a list of elements in one piece of memory. A record is its set, its flags, the lengths of key and data, and these.
type Records []byte

const header = 4

const (
	flagEnd uint8 = 1 << iota
	flagOther
)

// At returns the record at an offset.
func (rs Records) At(at int) (r Record, next int, ok bool) {
	if at >= len(rs) {
		return r, at, false
	}
	b := rs[at:]
	key, data := int(b[2]), int(b[3])
	next = header + key + data
	return Record{
		Set: program.SetID(b[0]), End: b[1]&flagEnd != 0, other: b[1]&flagOther != 0,
		Key: b[header : header+key : header+key], Data: b[header+key : next : next],
	}, at + next, true
}

// Row are records of one set whose keys begin with a number and end with consecutive ones.
type Row struct {
	records Records
	key     int // bytes of a key
	each    int // bytes of a record
}

// Row returns the records whose keys begin with a number.
func (rs Records) Row(set program.SetID, number uint32) Row {
	for at := 0; ; {
		r, next, ok := rs.At(at)
		if !ok || r.Set > set {
			return Row{}
		}
		if r.Set == set && binary.NativeEndian.Uint32(r.Key) == number {
			return Row{rs[at:], len(r.Key), next - at}
		}
		at = next
	}
}

// Data are those of one record of the row.
func (r Row) Data(n int) []byte {
	return r.records[n*r.each+header+r.key : (n+1)*r.each]
}

// Append appends the first records of the row, of those that it has, and makes room for so many records.
func (r Row) Append(out Records, has, room int) Records {
	start := len(out)
	out = append(slices.Grow(out, room*r.each), r.records[:min(has, room)*r.each]...)
	return out[:start+room*r.each]
}

// Append adds a record. The caller keeps the order.
func (rs Records) Append(r Record) Records {
	flags := uint8(0)
	if r.End {
		flags |= flagEnd
	}
	if r.other {
		flags |= flagOther
	}
	rs = append(rs, byte(r.Set), flags, byte(len(r.Key)), byte(len(r.Data)))
	return append(append(rs, r.Key...), r.Data...)
}

// AppendHeader adds the header of a record whose key and data the caller appends.
func (rs Records) AppendHeader(set program.SetID, key, data int) Records {
	return append(rs, byte(set), 0, byte(key), byte(data))
}

// compare orders records by set and key, and the end of a range before the beginning of the next one at the same address.
func (r *Record) compare(o *Record) int {
	if r.Set != o.Set {
		return cmp.Compare(r.Set, o.Set)
	}
	order := compareNumbers
	if r.Set.Kind() != serviceport.Slot {
		order = bytes.Compare
	}
	if c := order(r.Key, o.Key); c != 0 || r.End == o.End {
		return c
	}
	if r.End {
		return -1
	}
	return 1
}

func compareNumbers(a, b []byte) int {
	for len(a) >= 4 && len(b) >= 4 {
		if x, y := binary.NativeEndian.Uint32(a), binary.NativeEndian.Uint32(b); x != y {
			return cmp.Compare(x, y)
		}
		a, b = a[4:], b[4:]
	}
	return bytes.Compare(a, b)
}

// same reports whether the kernel needs no change from one record of a key to another.
func (r *Record) same(o *Record) bool {
	return !r.other && !o.other && (isShared(r.Set) || bytes.Equal(r.Data, o.Data))
}

// pair has the records that are visited, one after the other: nobody keeps them.
type pair struct{ a, b Record }

// diff calls each for the keys that are in one of two lists only, or in both with different data. A record that is not there is
// nil.
func (p *pair) diff(old, next Content, each func(old, next *Record)) {
	p.merge(old, next, skipEqual, func(a, b *Record) {
		if a == nil || b == nil || !a.same(b) {
			each(a, b)
		}
	})
}

// walk calls each for all keys of two lists.
func (p *pair) walk(old, next Content, each func(old, next *Record)) {
	p.merge(old, next, func(_, _ Content, i, j int) (int, int) { return i, j }, each)
}

func (p *pair) merge(old, next Content, skip func(old, next Content, i, j int) (int, int), visit func(old, next *Record)) {
	if old == nil || next == nil { // as at the first synchronization
		each(old, func(r *Record) { visit(r, nil) })
		each(next, func(r *Record) { visit(nil, r) })
		return
	}
	a, b := &p.a, &p.b
	for i, j := 0, 0; ; {
		i, j = skip(old, next, i, j)
		var afterA, afterB int
		var hasA, hasB bool
		*a, afterA, hasA = old.At(i)
		*b, afterB, hasB = next.At(j)
		if !hasA && !hasB {
			return
		}
		var order int
		switch {
		case !hasA:
			order = 1
		case !hasB:
			order = -1
		default:
			order = a.compare(b)
		}
		switch {
		case order < 0:
			visit(a, nil)
			i = afterA
		case order > 0:
			visit(nil, b)
			j = afterB
		default:
			visit(a, b)
			i, j = afterA, afterB
		}
	}
}

// skipEqual passes the records that stand in both lists at these places. Most of two versions of a large list are the same.
func skipEqual(old, next Content, i, j int) (int, int) {
	if s, is := old.(interface{ Prefix(Content) int }); is && i == 0 && j == 0 && next != nil {
		n := s.Prefix(next)
		return n, n
	}
	a, isA := old.(Records)
	b, isB := next.(Records)
	if !isA || !isB {
		return i, j
	}
	n := a[i:].equal(b[j:])
	return i + n, j + n
}

// equal is how many bytes two lists begin with that are the same records.
func (rs Records) equal(o Records) (n int) {
	same := 0
	for block := 256; block > 0; block /= 16 {
		for same+block <= min(len(rs), len(o)) && bytes.Equal(rs[same:same+block], o[same:same+block]) {
			same += block
		}
	}
	for n < same && n+rs[n:].size() <= same {
		n += rs[n:].size()
	}
	return n
}

// size is that of the first record.
func (rs Records) size() int { return header + int(rs[2]) + int(rs[3]) }

// ends are how many bytes of the same records two lists begin and end with; zero: they are equal.
type ends struct {
	first, last int32
	differ      bool
}

// endsOf compares the ends of long lists.
func endsOf(old, next Content) ends {
	const long = 1024
	a, _ := old.(Records)
	b, _ := next.(Records)
	if min(len(a), len(b)) < long {
		return ends{differ: true}
	}
	first := a.equal(b)
	a, b = a[first:], b[first:]
	same := 0
	for same < min(len(a), len(b)) && a[len(a)-1-same] == b[len(b)-1-same] {
		same++
	}
	for len(a) != len(b) || len(a) > same {
		if len(a) >= len(b) {
			a = a[a.size():]
		} else {
			b = b[b.size():]
		}
	}
	return ends{int32(first), int32(len(a)), true}
}

// least are what two lists have in common if each differs in this way from a third one.
func (e ends) least(o ends) ends {
	if !e.differ {
		return o
	}
	return ends{min(e.first, o.first), min(e.last, o.last), true}
}

// without returns what is between the ends.
func (e ends) without(c Content) Content {
	records, is := c.(Records)
	if !is || e.first+e.last == 0 {
		return c
	}
	return records[e.first : len(records)-int(e.last)]
}

// Builder makes records. Begin, the methods of program.Builder and Value write one record; End closes it.
type Builder struct {
	program.Builder
	starts []int
	value  int
	runs   []Records
	out    Records
}

// Begin begins a record: the key follows.
func (b *Builder) Begin(id program.SetID) {
	b.starts = append(b.starts, len(b.Arena))
	b.Arena = append(b.Arena, byte(id), 0, 0, 0)
	b.value = -1
}

// Value begins the data of the record.
func (b *Builder) Value() { b.value = len(b.Arena) }

// End closes the record.
func (b *Builder) End() {
	start := b.starts[len(b.starts)-1]
	key := start + header
	if b.value < 0 {
		b.value = len(b.Arena)
	}
	b.Arena[start+2], b.Arena[start+3] = byte(b.value-key), byte(len(b.Arena)-b.value)
}

// EndOfRange closes the record, which is the end of a range.
func (b *Builder) EndOfRange() {
	b.End()
	b.Arena[b.starts[len(b.starts)-1]+1] |= flagEnd
}

// Reset forgets all records and keeps the memory, if it is not much.
func (b *Builder) Reset() {
	const most = 1 << 20
	if b.Arena, b.starts, b.runs = b.Arena[:0], b.starts[:0], b.runs[:0]; cap(b.out) > most {
		b.out = nil
	}
}

// Run adds records that are sorted already, all of one set that has no other records. They must not change until Records.
func (b *Builder) Run(r Records) {
	if len(r) > 0 {
		b.runs = append(b.runs, r)
	}
}

// Records returns all records, sorted, until it is called again. Of several records with the same key, it keeps the first one.
func (b *Builder) Records() Records {
	record := func(start int) Record { r, _, _ := Records(b.Arena).At(start); return r }
	slices.SortStableFunc(b.starts, func(x, y int) int { r, o := record(x), record(y); return r.compare(&o) })
	b.starts = slices.CompactFunc(b.starts, func(x, y int) bool { r, o := record(x), record(y); return r.compare(&o) == 0 })
	slices.SortFunc(b.runs, func(x, y Records) int { return cmp.Compare(x[0], y[0]) })
	out, runs := b.out[:0], b.runs
	for _, start := range b.starts {
		for len(runs) > 0 && runs[0][0] < b.Arena[start] {
			out, runs = append(out, runs[0]...), runs[1:]
		}
		out = append(out, b.Arena[start:start+Records(b.Arena[start:]).size()]...)
	}
	for _, r := range runs {
		out = append(out, r...)
	}
	b.out = out
	return out
}

// edit appends the records to a list, with other data of one key. It keeps what it gets as it is.
func (rs Records) edit(out Records, r Record, drop bool) Records {
	at, n := rs.find(&r)
	out = append(slices.Grow(out, len(rs)-n+header+len(r.Key)+len(r.Data)), rs[:at]...)
	if !drop {
		out = out.Append(r)
	}
	return append(out, rs[at+n:]...)
}

// find returns the offset of a key and the size of its record. Without such a record, the size is 0 and the offset is where it
// belongs.
func (rs Records) find(r *Record) (offset, size int) {
	for at := 0; ; {
		is, next, ok := rs.At(at)
		switch order := is.compare(r); {
		case !ok || order > 0:
			return at, 0
		case order == 0:
			return at, next - at
		}
		at = next
	}
}
