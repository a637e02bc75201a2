package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

var start = time.Unix(1_000_000, 0)

// TestOrder: values come in the order of their times, which may change; an entry waits once at most.
func TestOrder(t *testing.T) {
	l, lane := NewLine(func(int) time.Duration { return 0 }), &Lane{NewRoom(9, 1), NewRates(0, 1, time.Hour)}
	entries := make([]Entry[int], 5)
	for i, at := range []int{4, 2, 3, 1, 5} {
		entries[i].Value = at
		l.Put(&entries[i], lane, "shop", start.Add(time.Duration(at)))
	}
	l.Put(&entries[3], lane, "shop", start.Add(6)) // 1 becomes the last one
	entries[2].Leave()
	entries[2].Leave()
	l.Put(&entries[4], lane, "other", start)
	for i, want := range [][]int{{5}, {2}, {4, 1}} {
		if got := l.Due(start.Add([]time.Duration{1, 2, time.Hour}[i])); !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	l.Put(&entries[0], lane, "shop", start)
	if waiting, asking := l.Waiting(), lane.Asking.used; waiting != 0 || asking != 4 || entries[0].queue != nil {
		t.Errorf("%d wait, %d are asked; the one that is asked waits: %+v", waiting, asking, entries[0])
	}
}

// TestRoom: greedy namespaces leave room for the next one, and it is never overfull.
func TestRoom(t *testing.T) {
	r := NewRoom(512, 2)
	take := func(namespace string) (n int) {
		for r.Take(namespace) {
			n++
		}
		return n
	}
	if a, b, c := take("a"), take("b"), take("c"); a != 256 || b != 128 || c != 64 {
		t.Errorf("they take %d, %d and %d", a, b, c)
	}
	for i := range 100 {
		take(string(rune('d' + i)))
	}
	if all, _ := r.Used(""); all != 512 {
		t.Errorf("%d of 512 places are used", all)
	}
	r.Leave("b")
	r.Leave("a")
	r.Take("late")
	_, a := r.Used("a")
	if _, b := r.Used("b"); a != 255 || b != 127 || r.Full("new") || r.Take("a") {
		t.Errorf("a has %d places, b %d", a, b)
	}
	empty := NewRoom(2, 2)
	empty.Take("a")
	if empty.Leave("a"); len(empty.of) > 0 {
		t.Error("a namespace without anything stays in memory")
	}
}

// TestRates: a namespace gets its rate, all together get theirs, and namespaces that use nothing are forgotten.
func TestRates(t *testing.T) {
	r := NewRates(0.1, 0.05, time.Second)
	used := map[string]time.Duration{}
	const cost, seconds = time.Millisecond, 100
	for now := start; now.Before(start.Add(seconds * time.Second)); now = now.Add(5 * time.Millisecond) {
		for _, n := range []string{"a", "b", "c"} {
			if r.Take(n, cost, now) {
				used[n] += cost
			}
		}
	}
	all := used["a"] + used["b"] + used["c"]
	if most := seconds*time.Second/10 + 100*time.Millisecond; all > most+cost || all < most*9/10 || used["a"] > most/2+cost {
		t.Errorf("used: %v, together at most %s", used, most)
	}
	later := start.Add(time.Hour / 2)
	r.Take("a", 10*time.Second*5/100, later) // more than there is at once
	if !r.Left("b", later.Add(5*time.Second)) || r.Left("a", later.Add(8*time.Second)) || !r.Left("a", later.Add(10*time.Second)) {
		t.Error("what a namespace has taken keeps it for too short or too long, or keeps others")
	}
	if r.Take("d", cost, start.Add(time.Hour)); len(r.of) != 1 {
		t.Errorf("rates of %d namespaces stay in memory", len(r.of))
	}
}

// TestLineForgets: a namespace of which nothing waits any more stays in no memory.
func TestLineForgets(t *testing.T) {
	l, lane := NewLine(func(int) time.Duration { return 0 }), &Lane{NewRoom(10, 2), NewRates(0, 1, time.Second)}
	e := &Entry[int]{Value: 7}
	l.Put(e, lane, "a", start)
	if got := l.Due(start); !slices.Equal(got, []int{7}) {
		t.Fatalf("due: %v", got)
	}
	if waiting, asking := l.Waiting(), lane.Asking.used; waiting != 0 || asking != 1 || len(l.waiting) != 0 {
		t.Errorf("%d wait, %d are asked, of %d namespaces", waiting, asking, len(l.waiting))
	}
	l.Put(e, lane, "a", start) // it is being asked, and does not wait
	l.Ended(e)
	l.Put(e, lane, "b", start)
	if waiting, asking := l.Waiting(), lane.Asking.used; waiting != 1 || asking != 0 {
		t.Errorf("%d wait, %d are asked", waiting, asking)
	}
}

// TestUsedUp: while all together have used what there is, nobody has anything, or each namespace an even part.
func TestUsedUp(t *testing.T) {
	r := NewRates(0.1, 0.05, time.Second)
	r.all = threadtime.Bucket{Used: time.Hour, At: start}
	if r.Left("a", start) || r.Take("a", time.Millisecond, start) {
		t.Error("a namespace has something left")
	}
	r.Even = true
	r.of["b"] = &threadtime.Bucket{At: start}
	r.of["c"] = &threadtime.Bucket{At: start}
	if got := r.rate(start); got != 0.1/3 {
		t.Errorf("one of three namespaces has a rate of %v", got)
	}
	delete(r.of, "b")
	if got := r.rate(start); got != 0.05 {
		t.Errorf("one of two namespaces has a rate of %v", got)
	}
}
