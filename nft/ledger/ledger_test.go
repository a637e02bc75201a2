package ledger

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/program"
)

// model is what a ledger does, in a few maps. A key of it is a set, a key and whether it ends a range.
type model struct {
	owners map[string]map[string]string // what each owner wants
	alone  map[string]string            // what belongs to no single owner
	kernel map[string]string            // data and comment
}

// comment is that of the tests: maps show their owner, and other sets do not.
func comment(owner string, r *Record) string {
	if r.Set == program.Services {
		return owner
	}
	return ""
}

func id(set program.SetID, key []byte) string { return string(byte(set)) + string(key) }

// wanted is what the kernel is to have.
func (m *model) wanted() map[string]string {
	out := maps.Clone(m.alone)
	for owner, elements := range m.owners {
		for id, data := range elements {
			r := Record{Set: program.SetID(id[0])}
			if isShared(r.Set) {
				data = ""
			}
			out[id] = data + comment(owner, &r)
		}
	}
	return out
}

// apply makes the kernel have a transaction. The kernel refuses what is there already, and what is not there.
func (m *model) apply(t *testing.T, w program.Writer) {
	t.Helper()
	for _, o := range w.Before {
		for id := range m.kernel {
			if o.Kind == program.FlushSet && program.SetID(id[0]).Name() == o.Name {
				delete(m.kernel, id)
			}
		}
	}
	for set := range program.SetCount {
		c := w.Changes[w.Family.Index()][set]
		for _, e := range c.Delete {
			if _, has := m.kernel[id(set, e.Key(w.Arena))]; !has {
				t.Fatalf("%s %x is deleted, and is not there", set.Name(), e.Key(w.Arena))
			}
			delete(m.kernel, id(set, e.Key(w.Arena)))
		}
		for _, e := range c.Add {
			if _, has := m.kernel[id(set, e.Key(w.Arena))]; has {
				t.Fatalf("%s %x is added, and is there", set.Name(), e.Key(w.Arena))
			}
			m.kernel[id(set, e.Key(w.Arena))] = string(e.Data(w.Arena)) + e.Label
		}
	}
}

func (m *model) check(t *testing.T, l *Ledger, when string) {
	t.Helper()
	want := m.wanted()
	if !maps.Equal(m.kernel, want) {
		t.Fatalf("%s: the kernel has %q, want %q", when, m.kernel, want)
	}
	var counts [program.SetCount]int
	for id := range want {
		counts[id[0]]++
	}
	if counts != l.counts {
		t.Fatalf("%s: counts %v, want %v", when, l.counts, counts)
	}
}

func word(n int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }

// history makes random changes of a ledger and of its model.
type history struct {
	*rand.Rand
	model
	l        *Ledger
	accounts map[string]*Account
	numbers  map[*Account]int // each account has keys of its own
}

func newHistory(seed uint64) *history {
	return &history{
		Rand: rand.New(rand.NewPCG(seed, 0)), l: New(program.IPv4, comment), accounts: map[string]*Account{}, numbers: map[*Account]int{},
		model: model{owners: map[string]map[string]string{}, alone: map[string]string{}, kernel: map[string]string{}},
	}
}

func (h *history) change() {
	name := fmt.Sprint("owner-", h.IntN(5))
	a := h.accounts[name]
	switch h.IntN(10) {
	case 0:
		if a != nil {
			h.l.Close(a)
			delete(h.accounts, name)
			delete(h.owners, name)
		}
	case 1:
		if other := name + "'"; a != nil && h.accounts[other] == nil {
			h.l.Rename(a, other)
			h.accounts[other], h.owners[other] = a, h.owners[name]
			delete(h.accounts, name)
			delete(h.owners, name)
		}
	case 2:
		key := word(h.IntN(30))
		data := word(h.IntN(3))
		h.l.Put(program.TargetPorts, key, data)
		h.alone[id(program.TargetPorts, key)] = string(data)
	case 3:
		key := word(h.IntN(30))
		h.l.Drop(program.TargetPorts, key)
		delete(h.alone, id(program.TargetPorts, key))
	default:
		if a == nil {
			a = h.l.Open(name)
			h.accounts[name], h.numbers[a] = a, 1000*(1+len(h.numbers))
		}
		h.want(name, a)
	}
}

// want gives an owner elements: some of its own, and some that others have, too.
func (h *history) want(name string, a *Account) {
	var b Builder
	elements := map[string]string{}
	put := func(set program.SetID, key, data []byte) {
		b.Begin(set)
		b.Arena = append(b.Arena, key...)
		b.Value()
		b.Arena = append(b.Arena, data...)
		b.End()
		if _, twice := elements[id(set, key)]; !twice {
			elements[id(set, key)] = string(data)
		}
	}
	n := h.numbers[a]
	for range h.IntN(8) {
		put(program.Services, word(n+h.IntN(10)), word(h.IntN(3)))
	}
	for range h.IntN(4) {
		put(program.ClusterIPs, word(h.IntN(6)), nil)
	}
	var run Records
	for slot := range h.IntN(300) {
		key, data := append(word(n), word(slot)...), word(slot)
		if h.IntN(100) == 0 {
			data = word(h.IntN(4))
		}
		run = run.Append(Record{Set: program.Endpoints, Key: key, Data: data})
		elements[id(program.Endpoints, key)] = string(data)
	}
	b.Run(run)
	h.l.Want(a, b.Records())
	h.owners[name] = elements
}

// disturb changes the kernel behind the ledger's back, and enters what was found, as a start does (all) or a repair (the keys).
func (h *history) disturb(all bool) {
	if all {
		h.l.Assume()
	}
	h.l.Each((*Account).Applied, func(a *Account, r *Record) {
		key := id(r.Set, r.Key)
		switch h.IntN(20) {
		case 0:
			delete(h.kernel, key)
		case 1:
			h.kernel[key] = "something else"
		}
		want := string(r.Data)
		if isShared(r.Set) {
			want = ""
		}
		is, has := h.kernel[key]
		switch {
		case !has:
			h.l.Correct(a, r, Missing)
		case is != want+h.l.Comment(a, r):
			h.l.Correct(a, r, Other)
		}
	})
	known := map[string]bool{}
	h.l.Each((*Account).Applied, func(_ *Account, r *Record) { known[id(r.Set, r.Key)] = true })
	for range h.IntN(3) {
		h.kernel[id(program.Services, word(h.IntN(50)))] = "foreign"
	}
	for key := range h.kernel {
		if !known[key] {
			h.l.Correct(nil, &Record{Set: program.SetID(key[0]), Key: []byte(key[1:])}, Other)
		}
	}
	h.l.Corrected()
}

// TestHistories: whatever changes, fails, gets lost or is disturbed, the next transaction that the kernel takes makes it have what
// is wanted, and the kernel has no reason to refuse it.
func TestHistories(t *testing.T) {
	for seed := range uint64(30) {
		h := newHistory(seed)
		for step := range 60 {
			for range h.IntN(6) {
				h.change()
			}
			w := program.NewWriter(program.IPv4)
			when := fmt.Sprintf("seed %d, step %d", seed, step)
			switch h.IntN(6) {
			case 0: // refused: nothing has changed
				h.l.Write(w)
				continue
			case 1: // nobody knows what the kernel has
				h.disturb(true)
			case 2: // the table is new
				clear(h.kernel)
				h.l.Forget()
			case 3: // an edit while a change is pending
				h.disturb(false)
			}
			h.l.Write(w)
			h.apply(t, w)
			h.l.Settle()
			h.check(t, h.l, when)
			if h.IntN(4) == 0 { // an edit while nothing is pending
				h.disturb(false)
				w := program.NewWriter(program.IPv4)
				h.l.Write(w)
				h.apply(t, w)
				h.l.Settle()
				h.check(t, h.l, when+", repaired")
			}
		}
		if n := len(h.l.pending); n > 0 {
			w := program.NewWriter(program.IPv4)
			h.l.Write(w)
			h.apply(t, w)
			h.l.Settle()
		}
		checkAccounts(t, h.l)
	}
}

// checkAccounts checks the list of accounts, and that an account keeps one copy of what it has.
func checkAccounts(t *testing.T, l *Ledger) {
	t.Helper()
	for i, a := range l.accounts {
		is, _ := a.applied.(Records)
		want, _ := a.wanted.(Records)
		if int(a.place) != i || a.pending || a.closed || len(is) > 0 && &is[0] != &want[0] {
			t.Fatalf("account %d of %q: %+v", i, a.owner, a)
		}
	}
}

// TestSettledChange: a change and its opposite between two transactions write nothing.
func TestSettledChange(t *testing.T) {
	l := New(program.IPv4, comment)
	a := l.Open("ns/a:p")
	records := Records{}.Append(Record{Set: program.Services, Key: word(1), Data: word(2)}).Append(Record{Set: program.ClusterIPs, Key: word(7)})
	l.Want(a, records)
	l.Settle()
	l.Want(a, nil)
	l.Want(a, slices.Clone(records))
	w := program.NewWriter(program.IPv4)
	if l.Write(w); !w.Empty() || len(l.Pending()) == 0 {
		t.Errorf("pending %d: %s", len(l.Pending()), w)
	}
}

// TestRanges: a set of ranges is written as a whole, whoever has what differs.
func TestRanges(t *testing.T) {
	for name, disturb := range map[string]func(*Ledger, *Account){
		"another range": func(l *Ledger, a *Account) {
			l.Want(a, rangeOf("\x0a\x00\x00\x00", "\x0a\x04\x00\x00"))
		},
		"a foreign one": func(l *Ledger, _ *Account) {
			l.Correct(nil, &Record{Set: program.PodCIDRs, Key: []byte("\x0b\x00\x00\x00")}, Other)
		},
		"a missing end": func(l *Ledger, a *Account) {
			l.Correct(a, &Record{Set: program.PodCIDRs, Key: []byte("\x0a\x01\x00\x00"), End: true}, Missing)
		},
	} {
		l := New(program.IPv4, comment)
		a := l.Ranges
		l.Want(a, rangeOf("\x0a\x00\x00\x00", "\x0a\x01\x00\x00"))
		l.Settle()
		disturb(l, a)
		l.Corrected()
		w := program.NewWriter(program.IPv4)
		l.Write(w)
		added, deleted := w.Elements()
		if len(w.Before) != 1 || w.Before[0].Kind != program.FlushSet || added != 2 || deleted != 0 {
			t.Errorf("%s: %s", name, w)
		}
	}
}

func rangeOf(first, behind string) Records {
	return Records{}.Append(Record{Set: program.PodCIDRs, Key: []byte(first)}).Append(Record{Set: program.PodCIDRs, Key: []byte(behind), End: true})
}

// TestOrder: records are in the order of their sets and keys; the numbers of slots count as numbers, and an adjacent range begins
// behind the end of the one before.
func TestOrder(t *testing.T) {
	var b Builder
	put := func(set program.SetID, key []byte, end bool) {
		b.Begin(set)
		b.Arena = append(b.Arena, key...)
		if end {
			b.EndOfRange()
		} else {
			b.End()
		}
	}
	for _, slot := range []int{256, 3, 300, 0, 3} {
		put(program.Endpoints, append(word(9), word(slot)...), false)
	}
	put(program.PodCIDRs, []byte{10, 1, 0, 0}, false)
	put(program.PodCIDRs, []byte{10, 1, 0, 0}, true)
	put(program.Services, word(1), false)
	b.Run(Records{}.Append(Record{Set: program.Pools, Key: word(2)}).Append(Record{Set: program.Pools, Key: word(1)}))
	got := ""
	each(b.Records(), func(r *Record) { got += fmt.Sprintf("%s %x %t\n", r.Set.Name(), r.Key, r.End) })
	want := ""
	for _, line := range []struct {
		set program.SetID
		key []byte
		end bool
	}{
		{program.Services, word(1), false},
		{program.Pools, word(2), false}, {program.Pools, word(1), false}, // a run stays as it is
		{program.Endpoints, append(word(9), word(0)...), false}, {program.Endpoints, append(word(9), word(3)...), false},
		{program.Endpoints, append(word(9), word(256)...), false}, {program.Endpoints, append(word(9), word(300)...), false},
		{program.PodCIDRs, []byte{10, 1, 0, 0}, true}, {program.PodCIDRs, []byte{10, 1, 0, 0}, false},
	} {
		want += fmt.Sprintf("%s %x %t\n", line.set.Name(), line.key, line.end)
	}
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestEnds: what two lists have in common at their ends makes no difference to how they differ, also if their bytes look as if
// other records were the same.
func TestEnds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	list := func(from Records) (out Records) {
		each(from, func(r *Record) {
			if random.IntN(40) > 0 {
				out = out.Append(*r)
			}
			if random.IntN(40) == 0 {
				out = out.edit(nil, Record{Set: r.Set, Key: r.Key, Data: bytes.Repeat([]byte{byte(r.Set), 0, 4, 0}, random.IntN(4))}, false)
			}
		})
		return out
	}
	var all Records
	for n := range 300 {
		all = all.Append(Record{Set: program.Services, Key: []byte{0, 0, byte(n >> 8), byte(n)}, Data: bytes.Repeat([]byte{byte(program.Services), 0, 4, 0}, random.IntN(4))})
	}
	text := func(a, b Content) (lines string) {
		new(pair).diff(a, b, func(old, next *Record) { lines += fmt.Sprintln(old, next) })
		return lines
	}
	for i := range 300 {
		a, b := list(all), list(all)
		if i == 0 { // the last record of one list is the data of the last one of the other
			last := Records{}.Append(Record{Set: program.Services, Key: []byte{1, 0, 0, 1}})
			a = append(slices.Clone(all).Append(Record{Set: program.Services, Key: []byte{1, 0, 0, 0}}), last...)
			b = slices.Clone(all).Append(Record{Set: program.Services, Key: []byte{1, 0, 0, 0}, Data: last})
		}
		if e := endsOf(a, b); text(e.without(a), e.without(b)) != text(a, b) {
			t.Fatalf("%x\n%x\nends of %+v", a, b, e)
		}
	}
}

// TestEditKeepsTheOld: a list that the kernel has is not changed in place.
func TestEditKeepsTheOld(t *testing.T) {
	old := Records{}.Append(Record{Set: program.Services, Key: word(1), Data: word(2)})
	before := bytes.Clone(old)
	old.edit(nil, Record{Set: program.Services, Key: word(1), Data: word(3)}, false)
	old.edit(nil, Record{Set: program.Services, Key: word(0), Data: word(3)}, false)
	old.edit(nil, Record{Set: program.Services, Key: word(1)}, true)
	if !bytes.Equal(old, before) {
		t.Errorf("%x became %x", before, old)
	}
}
