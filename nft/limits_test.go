package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// timed is a service port with a timeout.
func timed(number int, timeout time.Duration) contents.Port {
	p := manyPorts(program.IPv4, number, 1)[0]
	p.Affinity = timeout
	return p
}

// takeAllTimeouts has ports that use all timeouts, from 101 s on.
func takeAllTimeouts(t *testing.T, e *Engine) {
	t.Helper()
	for i := range 8 {
		mustSet(t, e, timed(i, time.Duration(101+i)*time.Second))
	}
	mustApply(t, e)
}

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
	for _, p := range []contents.Port{late, later, last} {
		err := e.Set(&p)
		want := fmt.Sprintf("8 other timeouts of session affinity are in use; the timeout is 10m instead of %s until there is room",
			rule.DurationText(p.Affinity))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want: %s", err, want)
		}
	}
	mustApply(t, e)
	if got := e.chainOf(t, &late); got != "random-3-sticky-10m" {
		t.Errorf("served by %s", got)
	}
	mustRetry(t, mustApply(t, e))
	mustSet(t, e, timed(53, 101*time.Second), timed(54, time.Minute)) // these are there
	mustApply(t, e)
	e.Delete(program.IPv4, timed(0, 0).Name)
	mustRetry(t, mustApply(t, e)) // number 53 has the timeout, too

	e.Delete(program.IPv4, timed(53, 0).Name)
	mustRetry(t, mustApply(t, e), late.Name, later.Name)
	mustSet(t, e, late, later)
	mustApply(t, e)
	if got := e.chainOf(t, &late); got != "random-3-sticky-3m20s" {
		t.Errorf("served by %s", got)
	}
	// A port that was told to wait changes its wish. Nothing is left that waits.
	mustSet(t, e, timed(52, time.Hour))
	e.Delete(program.IPv4, late.Name)
	e.Delete(program.IPv4, later.Name)
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
		if got, want := m.chainOf(t, &p), "random-3-sticky-"+rule.DurationText(p.Affinity); got != want {
			t.Fatalf("served by %s, want %s", got, want)
		}
	}
	if n := strings.Count(m.String(), "chain random-3-sticky"); n > 16+1 {
		t.Errorf("%d chains are left", n)
	}
}

// TestTooManyEndpoints: of more endpoints than slots, the first ones by address are served.
func TestTooManyEndpoints(t *testing.T) {
	for method, most := range map[program.Method]int{program.Random: program.MaxSlots, program.InTurn: program.MaxSlots, program.SourceHash: 65521} {
		m := OpenMemory(Options{})
		p := contents.Port{Family: program.IPv4, Name: "ns/huge:p", Protocol: tcp, Method: method,
			Frontends: []contents.Frontend{{Addr: netip.MustParseAddr("20.0.0.1"), Port: 80, Pool: program.ClusterPool}}}
		for i := range program.MaxSlots + 500 {
			p.Cluster = append(p.Cluster, contents.Endpoint{Addr: netip.AddrPortFrom(numbered4or6(program.IPv4, 10, i), 80), Slots: 2})
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
