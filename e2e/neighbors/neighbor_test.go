//go:build e2e

package neighbors

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
	"github.com/verdict-proxy/verdict/e2e/clients"
)

// neighbor is a program that shares the node with Verdict.
type neighbor interface {
	// start starts it and waits until its rules are in force.
	start(t *testing.T, b *bed)
	// reload has it read its configuration again, and waits for the end of that.
	reload(t *testing.T, b *bed)
	// stop ends it as its unit of systemd does.
	stop(t *testing.T, b *bed)
	// drops reports whether the neighbor itself drops new connections while it reloads, starts or stops, to a Service or
	// not. They must then be late, and not lost.
	drops() bool
	// trace is what "verdict check" calls the neighbor, or empty: it leaves nothing that belongs to it alone. Several names
	// have commas between, in the order of the report.
	trace() string
}

// pause is the time between two connections of a client. There are 16, which make 200 connections a second.
const pause = 80 * time.Millisecond

// reloads is how often a neighbor reloads under load, and connectionsBetween how many connections are made between.
const (
	reloads            = 5
	connectionsBetween = 200
)

// testNeighbor runs the scenarios with either side started first, and then reloads and restarts both under load. No
// connection may fail.
func testNeighbor(t *testing.T, newNeighbor func() neighbor, flags ...string) {
	t.Run("first", func(t *testing.T) {
		b, n := newBed(t), newNeighbor()
		n.start(t, b)
		b.expectTrace(t, n.trace())
		b.startVerdict(t, flags...)
		b.expectServed(t, "the neighbor was first")
	})
	t.Run("second", func(t *testing.T) {
		b, n := newBed(t), newNeighbor()
		b.startVerdict(t, flags...)
		n.start(t, b)
		b.expectServed(t, "Verdict was first")
		b.expectUpdates(t, "Verdict was first")
		b.underLoad(t, n, flags...)
		b.expectServed(t, "after reloads and restarts")
	})
}

// expectTrace expects that "verdict check" names what is on the node, and nothing else.
func (b *bed) expectTrace(t *testing.T, name string) {
	t.Helper()
	out, _ := b.Node.Command(binary, "check", "--output=json", "--manifests="+b.objects) // it reports the kernel's sysctls, too
	var list []preflight.Finding
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("verdict check: %v in %s", err, out)
	}
	var found []string
	for _, f := range list {
		if strings.HasPrefix(f.Detail, "found ") {
			found = append(found, f.Check)
		}
	}
	if got := strings.Join(found, ", "); got != name {
		t.Errorf("\"verdict check\" names %q, want %q\n%s", got, name, out)
	}
}

func (b *bed) underLoad(t *testing.T, n neighbor, flags ...string) {
	t.Helper()
	list := b.load(t)
	clients.WaitServed(t, b.World, list)
	open := clients.Hold(t, b.World, list)
	l := clients.Start(t, b.World, list, pause)
	l.Use(open)
	change := func(phase string, fn func(*testing.T, *bed)) {
		t.Helper()
		l.Phase(phase)
		if n.drops() {
			l.Excuse(func() { fn(t, b) })
		} else {
			fn(t, b)
		}
		l.WaitMore(t, connectionsBetween)
	}
	for i := range reloads {
		change(fmt.Sprintf("reload %d of the neighbor", i+1), n.reload)
	}
	l.Phase("Verdict restarts")
	b.restartVerdict(t, flags...)
	l.WaitMore(t, connectionsBetween)
	if _, flushes := n.(nftablesService); !flushes {
		l.Phase("Verdict restarts, and does not own its tables")
		b.restartVerdict(t, append([]string{"--table-owner=off"}, flags...)...)
		change("a reload of the neighbor, tables without an owner", n.reload)
	}
	change("the neighbor stops", n.stop)
	change("the neighbor starts", n.start)
	clients.ExpectAlive(t, open, "after reloads and restarts")
	l.End(t, b.dir)
}
