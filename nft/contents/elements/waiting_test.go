package elements

import (
	"slices"
	"testing"
	"time"
)

// TestWaiting: what has waited longest comes first, with all service ports that wait for it.
func TestWaiting(t *testing.T) {
	var l waiting
	for i, name := range []string{"c", "a", "b", "d"} {
		l.timeouts.add([]time.Duration{3, 1, 2, 3}[i], name)
	}
	l.numbers.add("y", "y")
	l.numbers.add("x", "x")
	l.timeouts.remove(2, "b")
	l.timeouts.remove(2, "b")
	l.timeouts.add(2, "b")
	for i, step := range []struct {
		timeouts, numbers int
		want              []string
	}{
		{0, 0, nil}, {-1, -1, nil}, {1, 0, []string{"c", "d"}}, {1, 1, []string{"a", "y"}}, {5, 5, []string{"b", "x"}}, {5, 5, nil},
	} {
		if got := l.take(step.timeouts, step.numbers); !slices.Equal(got, step.want) {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}
