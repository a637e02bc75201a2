package proxier

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
)

// meddled is a dataplane whose kernel others change.
type meddled struct {
	Dataplane
	servers bool // virtual servers differ
	parts   int  // of the next look
}

func (m *meddled) Check(repair bool) (dataplane.Found, error) {
	found, err := m.Dataplane.Check(repair)
	found.Servers = m.servers
	return found, err
}

func (m *meddled) Repair(dataplane.Interference) dataplane.Result { return m.Look() }

func (m *meddled) Look() dataplane.Result {
	m.parts--
	return dataplane.Result{Added: 1, More: m.parts > 0}
}

func newMeddled(t *testing.T, repair bool) (*world, *meddled) {
	t.Helper()
	w := newWorld(t)
	w.settings.Repair = repair
	w.store.MarkSynced()
	if err := w.Once(); err != nil {
		t.Fatal(err)
	}
	if w.check() || w.found != nil {
		t.Fatal("something was found although nobody changed anything")
	}
	m := &meddled{Dataplane: w.dataplane}
	w.dataplane = m
	return w, m
}

// checkTold compares what the observer was told.
func (w *world) checkTold(t *testing.T, when string, want ...RepairReport) {
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
		w.dataplane = m.Dataplane
		w.rules.missing = true
		for range 3 {
			if w.check() {
				t.Error("a pass is wanted for what a repair undoes")
			}
			w.repairFound()
			w.rules.missing = w.rules.missing && !repair
		}
		w.checkTold(t, "", RepairReport{Interference: dataplane.Interference{Structure: true}, Tried: repair})
		if undone := w.rules.repairs == 1; undone != repair {
			t.Errorf("repair %t: %d repairs", repair, w.rules.repairs)
		}
	}
}

// TestCheckWaitsForTheName: if the kernel tells of a change that a check has found already, there is one report, with the
// name of the process.
func TestCheckWaitsForTheName(t *testing.T) {
	w, m := newMeddled(t, true)
	w.dataplane = m.Dataplane
	w.rules.missing = true
	w.check()
	w.repair(dataplane.Interference{Process: "nft", Structure: true})
	w.repairFound()
	w.checkTold(t, "", RepairReport{Interference: dataplane.Interference{Structure: true}, Tried: true})
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
		w.checkTold(t, "after the pass", RepairReport{Servers: true, Tried: repair})
		if m.servers = !repair; w.check() {
			t.Error("a pass is wanted again")
		}
		w.checkTold(t, "after another check", RepairReport{Servers: true, Tried: repair})
	}
}

// TestLookInParts: after lost events, the loop looks at everything in parts, with pauses, and reports the sum.
func TestLookInParts(t *testing.T) {
	w, m := newMeddled(t, true)
	m.parts = 4
	w.repair(dataplane.Interference{Lost: true})
	for range 2 {
		if w.looking.due(0) == nil || w.looking.due(1) != nil {
			t.Fatal("the next part does not come, or comes while passes fail")
		}
		if pause := time.Until(w.looking.next); pause > minPause {
			t.Errorf("the pause is %s", pause)
		}
		w.look()
	}
	w.checkTold(t, "before the last part")
	w.look()
	w.checkTold(t, "after it", RepairReport{Interference: dataplane.Interference{Lost: true}, Tried: true, Result: dataplane.Result{Added: 4}})
	if w.looking.due(0) != nil || strings.Count(w.log.String(), "as they should be again") != 1 {
		t.Errorf("another part comes, or the end was not logged once:\n%s", w.log)
	}
}

// TestInterferencesDoNotFillTheLog: a process that changes the tables all the time gets a line for the first change, and
// one line a minute for the others. The observer is told of all.
func TestInterferencesDoNotFillTheLog(t *testing.T) {
	w, m := newMeddled(t, true)
	w.dataplane = m.Dataplane
	const changes = 200
	for range changes {
		w.repair(dataplane.Interference{Process: "nft", PID: 7, Structure: true})
	}
	lines := func(text string) int { return strings.Count(w.log.String(), text) }
	if n, done := lines("another process changed the tables"), lines("as they should be again"); n != 1 || done != 1 {
		t.Errorf("%d lines of changes and %d of repairs, want 1 and 1:\n%s", n, done, w.log)
	}
	if len(w.watcher.repairs) != changes {
		t.Errorf("the observer heard of %d repairs, want %d", len(w.watcher.repairs), changes)
	}
	said := w.errors.foreign.said
	for _, after := range []time.Duration{0, sayAgain - 1, sayAgain, sayAgain + 1, 3 * sayAgain} {
		w.errors.foreign.write(said.Add(after))
		want := 0
		if after >= sayAgain {
			want = 1
		}
		if n := lines("again and again"); n != want {
			t.Errorf("%s later: %d lines with a count, want %d:\n%s", after, n, want, w.log)
		}
	}
	if text := "changes=199 repairs=199 latest=nft pid=7"; lines(text) != 1 {
		t.Errorf("no %q in\n%s", text, w.log)
	}
	w.errors.foreign.changed(&dataplane.Interference{Process: "iptables"}, "", said.Add(2*sayAgain))
	if lines("process=iptables") != 1 {
		t.Errorf("a change after a quiet minute was not logged:\n%s", w.log)
	}
}
