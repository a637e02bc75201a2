package proxier

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
)

// meddled is a dataplane whose kernel others change.
type meddled struct {
	Dataplane
	servers bool // virtual servers differ
	parts   int  // of the next repair
}

func (m *meddled) Compare(repair bool) (dataplane.Found, error) {
	found, err := m.Dataplane.Compare(repair)
	found.Servers = m.servers
	return found, err
}

func (m *meddled) Repair(dataplane.Interference) dataplane.Result { return m.RepairMore() }

func (m *meddled) RepairMore() dataplane.Result {
	m.parts--
	return dataplane.Result{Added: 1, More: m.parts > 0}
}

// use replaces the dataplane.
func (w *world) use(d Dataplane) { w.passes.dataplane, w.repairs.dataplane = d, d }

func newMeddled(t *testing.T, repair bool) (*world, *meddled) {
	t.Helper()
	w := newWorld(t)
	w.repairs.enabled = repair
	w.store.MarkSynced()
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	if w.check() || w.repairs.found != nil {
		t.Fatal("something was found although nobody changed anything")
	}
	m := &meddled{Dataplane: w.passes.dataplane}
	w.use(m)
	return w, m
}

// checkTold compares what the observer was told.
func (w *world) checkTold(t *testing.T, when string, want ...report.Repair) {
	t.Helper()
	if len(w.watcher.repairs) != len(want) {
		t.Fatalf("%s: %d reports, want %d:\n%s", when, len(w.watcher.repairs), len(want), w.log)
	}
	for n, r := range w.watcher.repairs {
		if r.What() != want[n].What() || r.Tried != want[n].Tried || r.Result.Added != want[n].Result.Added {
			t.Errorf("%s: told of %s, tried %t, %d elements; want %s, %t, %d", when, r.What(), r.Tried, r.Result.Added, want[n].What(),
				want[n].Tried, want[n].Result.Added)
		}
	}
}

// TestCheckFindsTables: what a check finds in the tables is reported like what the kernel tells of, and undone. With
// --repair=false, it is reported once.
func TestCheckFindsTables(t *testing.T) {
	for _, repair := range []bool{true, false} {
		w, m := newMeddled(t, repair)
		w.use(m.Dataplane)
		w.rules.missing = true
		for range 3 {
			if w.check() {
				t.Error("a pass is wanted for what a repair undoes")
			}
			w.repairs.repairFound()
			w.rules.missing = w.rules.missing && !repair
		}
		w.checkTold(t, "", report.Repair{Interference: dataplane.Interference{Structure: true}, Tried: repair})
		if undone := w.rules.repairs == 1; undone != repair {
			t.Errorf("repair %t: %d repairs", repair, w.rules.repairs)
		}
	}
}

// TestAsWanted: a check reports that the kernel is as wanted, unless something differs or waits.
func TestAsWanted(t *testing.T) {
	w, m := newMeddled(t, true)
	expect := func(when string, want int) {
		t.Helper()
		w.check()
		if w.watcher.asWanted != want {
			t.Errorf("%s: reported %d times, want %d", when, w.watcher.asWanted, want)
		}
	}
	expect("nothing changed", 2) // newMeddled has checked, too
	w.pace.wait()
	expect("a change waits", 2)
	w.pace.applied(time.Now())
	expect("the change is in the kernel", 3)
	m.servers = true
	expect("virtual servers differ", 3)
	m.servers, w.rules.missing = false, true
	expect("the tables differ", 3)
	w.repairs.repairFound()
	w.rules.missing, m.parts = false, 2
	w.repairs.repair(dataplane.Interference{Lost: true})
	expect("everything is compared in parts", 3)
	w.repairs.recheck()
	w.pace.failed(time.Now())
	expect("a pass failed", 3)
	w.pace.applied(time.Now())
	expect("all is well again", 4)
}

// TestCheckWaitsForTheName: if the kernel tells of a change that a check has found already, there is one report, with the
// name of the process.
func TestCheckWaitsForTheName(t *testing.T) {
	w, m := newMeddled(t, true)
	w.use(m.Dataplane)
	w.rules.missing = true
	w.check()
	w.repairs.repair(dataplane.Interference{Process: "nft", Structure: true})
	w.repairs.repairFound()
	w.checkTold(t, "", report.Repair{Interference: dataplane.Interference{Structure: true}, Tried: true})
	if name := w.watcher.repairs[0].Interference.Process; name != "nft" {
		t.Errorf("the process is %q", name)
	}
}

// TestCheckFindsServers: a change of virtual servers is reported when the pass that repairs them is over. With
// --repair=false, it is reported once, and no pass is wanted.
func TestCheckFindsServers(t *testing.T) {
	for _, repair := range []bool{true, false} {
		w, m := newMeddled(t, repair)
		m.servers = true
		if w.check() != repair {
			t.Errorf("repair %t: a pass is wanted: %t", repair, !repair)
		}
		if repair {
			w.checkTold(t, "before the pass")
		}
		for range 2 {
			if err := w.Once(); err != nil {
				t.Fatal(err)
			}
		}
		w.checkTold(t, "after the pass", report.Repair{Servers: true, Tried: repair})
		if m.servers = !repair; w.check() {
			t.Error("a pass is wanted again")
		}
		w.checkTold(t, "after another check", report.Repair{Servers: true, Tried: repair})
	}
}

// TestLookInParts: after lost events, the loop looks at everything in parts, with pauses, and reports the sum.
func TestLookInParts(t *testing.T) {
	w, m := newMeddled(t, true)
	m.parts = 4
	w.repairs.repair(dataplane.Interference{Lost: true})
	for range 2 {
		if w.repairs.rechecking.due(0) == nil || w.repairs.rechecking.due(1) != nil {
			t.Fatal("the next part does not come, or comes while passes fail")
		}
		if pause := time.Until(w.repairs.rechecking.next); pause > minPause {
			t.Errorf("the pause is %s", pause)
		}
		w.repairs.recheck()
	}
	w.checkTold(t, "before the last part")
	w.repairs.recheck()
	w.checkTold(t, "after it", report.Repair{Interference: dataplane.Interference{Lost: true}, Tried: true, Result: dataplane.Result{Added: 4}})
	if w.repairs.rechecking.due(0) != nil || strings.Count(w.log.String(), "as they should be again") != 1 {
		t.Errorf("another part comes, or the end was not logged once:\n%s", w.log)
	}
}

// TestInterferencesDoNotFillTheLog: a process that changes the tables all the time gets a line for the first change, and
// one line a minute for the others. The observer gets all.
func TestInterferencesDoNotFillTheLog(t *testing.T) {
	w, m := newMeddled(t, true)
	w.use(m.Dataplane)
	const changes = 200
	for range changes {
		w.repairs.repair(dataplane.Interference{Process: "nft", PID: 7, Structure: true})
	}
	lines := func(text string) int { return strings.Count(w.log.String(), text) }
	if n, done := lines("another process changed the tables"), lines("as they should be again"); n != 1 || done != 1 {
		t.Errorf("%d lines of changes and %d of repairs, want 1 and 1:\n%s", n, done, w.log)
	}
	if len(w.watcher.repairs) != changes {
		t.Errorf("the observer heard of %d repairs, want %d", len(w.watcher.repairs), changes)
	}
}
