package chains

import (
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestSpareClasses: of the classes that no pool uses, those that were used last stay, and their chains with them.
func TestSpareClasses(t *testing.T) {
	p := func() program.Program { return program.Program{Family: program.IPv4} }
	sticky := func(i int) program.Class {
		return program.NewClass(program.Random, 2, 100*time.Second+time.Duration(i)*time.Second, false)
	}
	c, tx := New(ledger.New(program.IPv4, func(string, *ledger.Record) string { return "" })), &program.Transaction{}
	w := tx.For(program.IPv4)
	ids := map[uint32]bool{}
	for i := range spareClasses + 5 {
		ids[c.Acquire(w, sticky(i), p)] = true
	}
	if len(ids) != spareClasses+5 || ids[0] {
		t.Fatalf("%d classes have the numbers %v", spareClasses+5, ids)
	}
	if room := c.Room(); room != ExactTimeouts-spareClasses-5 {
		t.Errorf("room for %d timeouts", room)
	}
	for i := range spareClasses + 5 {
		c.Release(sticky(spareClasses + 4 - i)) // the last one first
	}
	first := c.Acquire(w, sticky(spareClasses+4), p) // in use again
	retired := func(all bool) (names []string) {
		tx := &program.Transaction{}
		c.Retire(tx.For(program.IPv4), all)
		for _, o := range tx.After {
			if o.Kind == program.DeleteChain {
				names = append(names, o.Name)
			}
		}
		return names
	}
	var want []string
	for i := range 4 {
		want = append(want, sticky(spareClasses+3-i).ChainName())
	}
	if got := retired(false); !slices.Equal(got, want) {
		t.Errorf("retired %q, want %q", got, want)
	}
	if got := retired(false); got != nil {
		t.Errorf("retired %q, although %d spare classes may stay", got, spareClasses)
	}
	if room := c.Room(); room != ExactTimeouts-spareClasses-1 {
		t.Errorf("room for %d timeouts, while %d classes are there", room, spareClasses+1)
	}
	if got := retired(true); len(got) != spareClasses {
		t.Errorf("all spare classes are to go, and %d went", len(got))
	}
	all := c.All(p())
	if _, there := all[sticky(spareClasses+4).ChainName()]; !there || first == 0 {
		t.Error("a class in use is gone")
	}
	if _, there := all[sticky(0).ChainName()]; there {
		t.Error("a retired class has a chain")
	}
	if !c.HaveTokens() {
		t.Error("the token chains went, although they stay")
	}
	c.Release(sticky(spareClasses + 4))
	c.ForgetSpares()
	if c.HaveTokens() || c.Room() != ExactTimeouts {
		t.Errorf("after everything is written anew: token chains %t, room for %d timeouts", c.HaveTokens(), c.Room())
	}
}

// TestPreferredNumbers: a class gets the number that it had in an earlier process, and no other class does.
func TestPreferredNumbers(t *testing.T) {
	p := func() program.Program { return program.Program{Family: program.IPv4} }
	class := func(size int) program.Class { return program.NewClass(program.InTurn, size, 0, false) }
	c, tx := New(ledger.New(program.IPv4, func(string, *ledger.Record) string { return "" })), &program.Transaction{}
	w := tx.For(program.IPv4)
	next := c.Acquire(w, class(1), p) + 1
	c.Preferred = map[uint32]program.Class{next: class(3), next + 5: class(2)}
	for _, step := range []struct {
		size int
		want uint32
	}{{2, next + 5}, {4, next + 1}, {3, next}, {5, next + 2}, {2, next + 5}} {
		if got := c.Acquire(w, class(step.size), p); got != step.want {
			t.Errorf("size %d has number %d, want %d", step.size, got, step.want)
		}
	}
	sticky := func(seconds int) program.Class {
		return program.NewClass(program.Random, 2, time.Duration(seconds)*time.Second, false)
	}
	c.Preferred = map[uint32]program.Class{200: sticky(1000)}
	seen := map[uint32]bool{}
	for i := range 300 {
		seen[c.Acquire(w, sticky(1+i), p)] = true
	}
	if len(seen) != 300 || seen[200] {
		t.Errorf("300 classes have %d numbers, that of another class: %t", len(seen), seen[200])
	}
	if got := c.Acquire(w, program.Class{}, p); got != 0 {
		t.Errorf("a pool without slots has class %d", got)
	}
}

// TestSharedTimeout: of two classes with one affinity timeout that is no rung, the timeout stays until both have gone.
func TestSharedTimeout(t *testing.T) {
	c, p := New(ledger.New(program.IPv4, func(string, *ledger.Record) string { return "" })), func() program.Program { return program.Program{Family: program.IPv4} }
	retire := func() { c.Retire((&program.Transaction{}).For(program.IPv4), true) }
	small, large := program.NewClass(program.Random, 2, 101*time.Second, false), program.NewClass(program.Random, 4, 101*time.Second, false)
	w := (&program.Transaction{}).For(program.IPv4)
	c.Acquire(w, small, p)
	c.Acquire(w, large, p)
	for i, class := range []program.Class{small, large} {
		if room := c.Room(); room != ExactTimeouts-1 {
			t.Errorf("%d went: room for %d timeouts", i, room)
		}
		c.Release(class)
		retire()
	}
	if room := c.Room(); room != ExactTimeouts {
		t.Errorf("both went: room for %d timeouts", room)
	}
}

// TestPermanentClasses: the chain of a class without affinity stays: to make it again may take long (program.ExactDraws).
func TestPermanentClasses(t *testing.T) {
	c, p := New(ledger.New(program.IPv4, func(string, *ledger.Record) string { return "" })), func() program.Program { return program.Program{Family: program.IPv4} }
	w := (&program.Transaction{}).For(program.IPv4)
	class := program.NewClass(program.InTurn, 3, 0, false)
	c.Acquire(w, class, p)
	c.Release(class)
	c.Retire(w, true)
	if _, there := c.All(p())[class.ChainName()]; !there || len(w.After) > 0 {
		t.Errorf("the chain is there: %t; then: %v", there, w.After)
	}
}
