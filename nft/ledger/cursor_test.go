package ledger

import (
	"bytes"
	"testing"

	"github.com/verdict-proxy/verdict/nft/program"
)

// TestCursor: a cursor visits each element once, in parts, although accounts come, go and change in between. An account that
// changes all the time does not hold up the others.
func TestCursor(t *testing.T) {
	for seed := range uint64(20) {
		h := newHistory(seed)
		stays := h.l.Open("stays")
		var b Builder
		for n := range 500 {
			b.Begin(program.Services)
			b.Word(uint32(100000 + n))
			b.End()
		}
		h.l.Want(stays, b.Records())
		for range 20 {
			h.change()
		}
		h.l.Settle()
		seen, steps := map[string]int{}, 0
		busy := h.l.Open("busy")
		for c := NewCursor(h.l); c.Left(); steps++ {
			n := 0
			c.Next(7, func(a *Account, r *Record) {
				if n++; a == stays {
					seen[string(r.Key)]++
				}
			})
			if n > 7 {
				t.Fatalf("%d elements without a pause", n)
			}
			h.change()
			h.l.Want(busy, Records{}.Append(Record{Set: program.Services, Key: word(200000), Data: word(steps)}))
			h.l.Settle()
			if steps > 10000 {
				t.Fatal("the cursor never comes to the end")
			}
		}
		if len(seen) != 500 {
			t.Errorf("seed %d: %d of 500 elements were visited", seed, len(seen))
		}
	}
}

// TestCursorAfterAnother: the account that takes the place of one that goes is visited from its beginning.
func TestCursorAfterAnother(t *testing.T) {
	l := New(program.IPv4, comment)
	records := func(n, length int) (out Records) {
		for i := range n {
			out = out.Append(Record{Set: program.Services, Key: word(i), Data: bytes.Repeat([]byte{1}, length)})
		}
		return out
	}
	goes, last := l.Open("goes"), l.Open("last")
	l.Want(goes, records(20, 4))
	l.Want(last, records(20, 9))
	l.Settle()
	c := NewCursor(l)
	c.Next(100, func(*Account, *Record) {}) // last
	c.Next(3, func(*Account, *Record) {})
	l.Close(goes)
	l.Settle()
	n := 0
	for c.Left() {
		c.Next(3, func(a *Account, r *Record) {
			if n++; a != last || len(r.Data) != 9 {
				t.Fatalf("an element of %q with %d bytes of data", a.Owner(), len(r.Data))
			}
		})
	}
	if n != 20 {
		t.Errorf("%d elements were visited, want all 20 of the account that took the place", n)
	}
}

// TestCursorAfterChange: the place in a list that has changed says nothing about the next one, even if that has its memory.
func TestCursorAfterChange(t *testing.T) {
	l := New(program.IPv4, comment)
	a := l.Open("a")
	records := func(n int) (out Records) {
		for i := range n {
			out = out.Append(Record{Set: program.Services, Key: word(i), Data: make([]byte, 1200/n)})
		}
		return out
	}
	l.Want(a, records(300))
	l.Settle()
	c := NewCursor(l)
	c.Next(100, func(*Account, *Record) {})
	for range 2 { // the second one has the memory of the first one
		l.Want(a, records(301))
		l.Settle()
		l.Want(a, records(300))
		l.Settle()
	}
	n := 0
	for c.Left() {
		c.Next(1000, func(*Account, *Record) { n++ })
	}
	if n != 300 {
		t.Errorf("%d elements were visited, want 300", n)
	}
}
