package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestClassesFit: however many service ports there are, there is a number for each class that they can need.
func TestClassesFit(t *testing.T) {
	draws := map[draw]bool{}
	for n := 1; n <= maxSlots; n++ {
		draws[drawFor(Random, n)], draws[drawFor(InTurn, n)] = true, true
	}
	for _, size := range maglevSizes {
		draws[drawFor(SourceHash, int(size.slots))] = true
	}
	timeouts := exactTimeouts + rungCount
	if most := len(draws) * (1 + 2*timeouts); most >= maxClasses {
		t.Errorf("%d draws and %d timeouts can need %d classes; there are %d numbers", len(draws), timeouts, most, maxClasses-1)
	}
}

func TestRungs(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		time.Second: time.Minute, time.Minute: time.Minute, 61 * time.Second: 10 * time.Minute, 3 * time.Hour: 3 * time.Hour,
		3*time.Hour + 1: 12 * time.Hour, 24 * time.Hour: 24 * time.Hour, 100 * time.Hour: 24 * time.Hour,
	} {
		if got := rungFor(timeout); got != want {
			t.Errorf("%s: %s, want %s", timeout, got, want)
		}
	}
	if list := rungs(); !slices.IsSorted(list[:]) {
		t.Errorf("not sorted: %v", list)
	}
}

// timed is a service port with a timeout.
func timed(number int, timeout time.Duration) Port {
	p := manyPorts(IPv4, number, 1)[0]
	p.Affinity = timeout
	return p
}

// takeAllTimeouts has ports that use all timeouts, from 101 s on.
func takeAllTimeouts(t *testing.T, e *Engine) {
	t.Helper()
	for i := range exactTimeouts {
		mustSet(t, e, timed(i, time.Duration(101+i)*time.Second))
	}
	mustApply(t, e)
}

func (e *Engine) chainOf(name string) string { return e.tables[0].ports[name].pools[0].class.chain() }

func mustRetry(t *testing.T, r Result, want ...string) {
	t.Helper()
	var got []string
	for _, id := range r.Room {
		got = append(got, id.Name)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("to be set again: %v, want %v", got, want)
	}
}

// TestTimeoutsUsedUp: a port that comes too late for its timeout gets the next rung, and its timeout as soon as the
// last port with another one is gone.
func TestTimeoutsUsedUp(t *testing.T) {
	e := OpenMemory(Options{}).Engine
	takeAllTimeouts(t, e)
	late, later, last := timed(50, 200*time.Second), timed(51, 200*time.Second), timed(52, 300*time.Second)
	for _, p := range []Port{late, later, last} {
		err := e.Set(&p)
		want := fmt.Sprintf("8 other timeouts of session affinity are in use; the timeout is 10m instead of %s until there is room",
			duration(p.Affinity))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want: %s", err, want)
		}
	}
	mustApply(t, e)
	if got := e.chainOf(late.Name); got != "random-3-sticky-10m" {
		t.Errorf("served by %s", got)
	}
	mustRetry(t, mustApply(t, e))
	mustSet(t, e, timed(53, 101*time.Second), timed(54, time.Minute)) // these are there
	mustApply(t, e)
	e.Delete(IPv4, timed(0, 0).Name)
	mustRetry(t, mustApply(t, e)) // number 53 has the timeout, too

	e.Delete(IPv4, timed(53, 0).Name)
	mustRetry(t, mustApply(t, e), late.Name, later.Name)
	mustSet(t, e, late, later)
	mustApply(t, e)
	if got := e.chainOf(late.Name); got != "random-3-sticky-3m20s" {
		t.Errorf("served by %s", got)
	}
	// A port that was told to wait changes its wish. Nothing is left that waits.
	mustSet(t, e, timed(52, time.Hour))
	e.Delete(IPv4, late.Name)
	e.Delete(IPv4, later.Name)
	mustRetry(t, mustApply(t, e))
}

// TestTimeoutChanges: a port that changes its timeout again and again gets each one, and leaves nothing behind.
func TestTimeoutChanges(t *testing.T) {
	m := OpenMemory(Options{})
	for i := range 100 {
		p := timed(0, time.Duration(100+i)*time.Second)
		if err := m.Set(&p); err != nil {
			mustRetry(t, mustApply(t, m.Engine), p.Name)
			mustSet(t, m.Engine, p)
		}
		mustApply(t, m.Engine)
		if got, want := m.chainOf(p.Name), "random-3-sticky-"+duration(p.Affinity); got != want {
			t.Fatalf("served by %s, want %s", got, want)
		}
	}
	if n := strings.Count(m.String(), "chain random-3-sticky"); n > spareClasses+1 {
		t.Errorf("%d chains are left", n)
	}
}

// TestNumbersUsedUp: without a number, a port refuses its clients. It does not lead to endpoints of the past.
func TestNumbersUsedUp(t *testing.T) {
	m := OpenMemory(Options{})
	e, tb := m.Engine, m.tables[0]
	mustSet(t, e, manyPorts(IPv4, 0, 2)...)
	mustApply(t, e)
	for i := uint32(1); i < maxPorts; i++ {
		tb.numbers.claim(i)
	}
	late := manyPorts(IPv4, 5, 2)
	for i := range late {
		err := e.Set(&late[i])
		want := "all 524287 service port numbers of the family are in use; the port is served as soon as one is free, " +
			"and refuses its clients until then"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want: %s", err, want)
		}
	}
	text := mustApply(t, e).Text()
	if !strings.Contains(text, "add element ip verdict no-endpoints { 20.0.0.5 . tcp . 80") || strings.Contains(text, "verdict services") {
		t.Errorf("a port without a number:\n%s", text)
	}
	mustRetry(t, mustApply(t, e))
	changed := manyPorts(IPv4, 0, 1)[0]
	changed.Protocol = udp
	mustSet(t, e, changed) // it gets its own number again
	mustRetry(t, mustApply(t, e))

	e.Delete(IPv4, manyPorts(IPv4, 1, 1)[0].Name)
	mustRetry(t, mustApply(t, e), late[0].Name)
	mustSet(t, e, late[0])
	text = mustApply(t, e).Text()
	if !strings.Contains(text, "add element ip verdict services { 20.0.0.5 . tcp . 80") || !strings.Contains(text, "delete element ip verdict no-endpoints") {
		t.Errorf("the port is not served:\n%s", text)
	}
	e.rebuild = true
	before := m.unstamped()
	mustApply(t, e)
	if m.unstamped() != before {
		t.Error("a build of the same state differs")
	}
}

// TestTooManyEndpoints: of more endpoints than slots, the first ones by address are served.
func TestTooManyEndpoints(t *testing.T) {
	for method, most := range map[Method]int{Random: maxSlots, InTurn: maxSlots, SourceHash: 65521} {
		m := OpenMemory(Options{})
		p := Port{Family: IPv4, Name: "ns/huge:p", Protocol: tcp, Method: method,
			Frontends: []Frontend{{Addr: netip.MustParseAddr("20.0.0.1"), Port: 80, Pool: ClusterPool}}}
		for i := range maxSlots + 500 {
			p.Cluster = append(p.Cluster, Endpoint{Addr: netip.AddrPortFrom(numbered4or6(IPv4, 10, i), 80), Slots: 2})
		}
		err := m.Set(&p)
		want := fmt.Sprintf("66036 endpoints are more than the %d slots of a pool; the first %d by address are served", most, most)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want: %s", method, err, want)
		}
		mustApply(t, m.Engine)
		l, err := m.List(nil)
		if err != nil || len(l.Frontends) != 1 {
			t.Fatalf("%v, %v", l, err)
		}
		served := l.Frontends[0].Cluster
		if len(served) != most || served[most-1].Addr != p.Cluster[most-1].Addr {
			t.Errorf("%s: %d endpoints are served, want %d", method, len(served), most)
		}
	}
}
