package threadtime

import (
	"testing"
	"time"
)

// TestWaiting: the time in which a goroutine waits does not count.
func TestWaiting(t *testing.T) {
	took := Measure()
	<-time.After(200 * time.Millisecond)
	if got := took(); got >= 200*time.Millisecond {
		t.Errorf("waiting for 200 ms counts as %s", got)
	}
}

// TestWorking: the time in which it works counts.
func TestWorking(t *testing.T) {
	took := Measure()
	for n := 0; used() < 30*time.Millisecond; n++ {
	}
	began := used()
	if got := took(); got <= 0 || got > used() {
		t.Errorf("work counts as %s of the %s that the thread has run", got, began)
	}
}
