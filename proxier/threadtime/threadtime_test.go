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

// TestMeter: the first long piece counts as it is. Of those that follow, only the time counts in which the thread ran, and that
// counts once.
func TestMeter(t *testing.T) {
	var m Meter
	m.Start()
	began := time.Now()
	<-time.After(5 * time.Millisecond)
	if got := m.Since(began); got < 5*time.Millisecond {
		t.Errorf("the first 5 ms count as %s", got)
	}
	m.Stop()
	m.long = time.Now().Add(time.Hour) // the test may stand still
	m.Start()
	defer m.Stop()
	before := used()
	began = time.Now()
	for used() < before+5*time.Millisecond {
	}
	if got := m.Since(began); got < 5*time.Millisecond || got > used()-before+Brief {
		t.Errorf("5 ms of work count as %s", got)
	}
	began = time.Now()
	<-time.After(200 * time.Millisecond)
	if got := m.Since(began); got >= 200*time.Millisecond {
		t.Errorf("waiting for 200 ms counts as %s", got)
	}
}
