package chains

import (
	"slices"
	"testing"
	"time"
)

func TestRungs(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		time.Second: time.Minute, time.Minute: time.Minute, 61 * time.Second: 10 * time.Minute, 3 * time.Hour: 3 * time.Hour,
		3*time.Hour + 1: 12 * time.Hour, 24 * time.Hour: 24 * time.Hour, 100 * time.Hour: 24 * time.Hour,
	} {
		if got := RungFor(timeout); got != want {
			t.Errorf("%s: %s, want %s", timeout, got, want)
		}
	}
	if list := rungs(); !slices.IsSorted(list[:]) {
		t.Errorf("not sorted: %v", list)
	}
}
