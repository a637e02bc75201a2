package endpointhealth

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Load and Save implement Memory.
func (w *world) Load() ([]Remembered, error) { return slices.Clone(w.memory), nil }

func (w *world) Save(list []Remembered) error { w.memory = list; return nil }

// TestRestart: a restart brings no failed endpoint back, by whatever word it failed, and asks it first. What nobody wants any
// more is forgotten.
func TestRestart(t *testing.T) {
	pool := []netip.AddrPort{at(1), at(2), at(3), at(4), near(1)}
	svc := shop(func(s *state.Service) { s.Check.Port = 9000 })
	before := newWorld(t, func(*Options) {})
	before.Memory = before
	before.serve(svc, pool, nil)
	before.settle(web)
	checked := netip.AddrPortFrom(at(2).Addr(), 9000)
	before.answers[at(1)], before.answers[checked] = probe.Refused, probe.NoAnswer
	before.suspectAt(at(1))
	before.wants("before the restart", before.settle(web), pool[2:]...)
	since := map[netip.AddrPort]time.Time{}
	for _, s := range before.Statuses(web) {
		since[s.At] = s.Since
	}
	before.ledger.save(&before.mu, time.Now())

	var log bytes.Buffer
	after := newWorld(t, func(o *Options) { o.Memory, o.Log = before, slog.New(slog.NewTextHandler(&log, nil)) })
	if !strings.Contains(log.String(), `level=INFO msg="endpoints had failed before the restart; they get no connections until they answer" endpoints=2 services=1`) {
		t.Errorf("the log says nothing of the two that had failed:\n%s", &log)
	}
	after.answers = before.answers
	gone := state.Name{Namespace: "shop", Name: "gone"}
	after.Store.SetHealth(gone, state.Health{{Protocol: state.TCP, At: at(1)}})
	after.serve(svc, pool, nil)
	after.wants("in the first plan", after.plan(web), pool[2:]...)
	if list := after.Statuses(web); len(list) != 4 || slices.ContainsFunc(list, func(s Status) bool { return s.Since != since[s.At] }) {
		t.Errorf("after the restart: %+v, want two endpoints that fail by both words since %v", list, since)
	}
	if after.Store.MarkSynced(); after.Store.Health(gone) != nil {
		t.Error("the health of a Service that is gone stays")
	}
	is := after.ledger.of(gone)
	is.recalled, is.published = true, state.Health{{Protocol: state.TCP, At: at(1)}} // as if it had been in the memory
	after.ledger.unsaved = true
	after.ledger.save(&after.mu, time.Now())
	if after.ledger.services[gone] != nil || slices.ContainsFunc(before.memory, func(r Remembered) bool { return r.Service == gone }) {
		t.Error("a Service that is gone is remembered for ever")
	}
	after.wants("when they have been asked", after.settle(web), pool[2:]...)
	clear(after.answers)
	after.wants("when they answer", after.settle(web), pool...)
	after.ledger.save(&after.mu, time.Now().Add(time.Hour))
	if len(before.memory) != 0 {
		t.Errorf("after the next saving: %v", before.memory)
	}

	off := newWorld(t, func(o *Options) {
		before.memory = []Remembered{{Service: web, Failure: state.Failure{Protocol: state.TCP, At: at(1)}}}
		o.Memory, o.Settings.OutlierDetection, o.Settings.ActiveChecks = before, config.OutlierOff, false
	})
	off.serve(svc, pool, nil)
	off.publish(time.Now())
	off.wants("when nobody looks any more", off.plan(web), pool...)
}

// TestRestartOfRefusing: most endpoints of a pool refused their checks before a restart. None of them gets connections before it is
// asked: the limit is for silence only, and they were not silent.
func TestRestartOfRefusing(t *testing.T) {
	pool := []netip.AddrPort{at(1), at(2), at(3), at(4)}
	before := newWorld(t, checksOnly)
	before.Memory = before
	for _, a := range pool[:3] {
		before.answers[a] = probe.Refused
	}
	before.serve(shop(func(*state.Service) {}), pool, nil)
	before.wants("before the restart", before.settle(web), at(4))
	before.ledger.save(&before.mu, time.Now())
	after := newWorld(t, func(o *Options) { checksOnly(o); o.Memory = before })
	after.serve(shop(func(*state.Service) {}), pool, nil)
	after.publish(time.Now().Add(time.Minute))
	after.wants("after the restart", after.plan(web), at(4))
}

// TestDrain: while a node drains, no Service has endpoints. The next process knows which of them fail.
func TestDrain(t *testing.T) {
	w := newWorld(t, checksOnly)
	w.Memory = w
	w.serve(shop(func(*state.Service) {}), []netip.AddrPort{at(1), at(2)}, nil)
	w.answers[at(1)] = probe.Refused
	w.wants("before", w.settle(web), at(2))
	w.Store.SetDrain(state.Refusing)
	w.wants("while the node drains", w.plan(web))
	w.now = w.now.Add(time.Minute)
	w.publish(w.now)
	w.end()
	if len(w.memory) != 1 || w.memory[0].Failure.At != at(1) {
		t.Errorf("saved: %+v", w.memory)
	}
}

// TestChangedCheck: an endpoint that fails its check stays out when the check changes, until it answers the new one. The others
// stay good, and show that this node reaches them.
func TestChangedCheck(t *testing.T) {
	for _, fault := range []probe.Fault{probe.Refused, probe.NoAnswer} {
		w := newWorld(t, checksOnly)
		pool := []netip.AddrPort{at(1), at(2), at(3)}
		w.serve(shop(func(*state.Service) {}), pool, nil)
		w.answers[at(1)], w.answers[at(2)] = fault, fault
		w.wants("before", w.settle(web), at(3))
		w.serve(shop(func(s *state.Service) { s.Check.Timeout, s.Check.Rise = 2*time.Second, 5 }), pool, nil)
		w.plan(web)
		w.now = w.now.Add(time.Minute)
		w.publish(w.now)
		w.wants("before the first new check", w.plan(web), at(3))
		if all, failing := w.checks.Counts(); all != 3 || failing != 2 {
			t.Errorf("%d of %d checks fail", failing, all)
		}
		for _, q := range w.checks.Due(w.now) {
			if q.At == at(1) {
				w.answered(q, probe.Answer{Connected: true}) // the first of five good answers
			}
		}
		w.publish(w.now.Add(time.Minute))
		w.wants("after a good answer", w.plan(web), at(1), at(3))
	}
}

// TestWrittenAgain: a Service is deleted and written again before the loop looks. Its failing endpoint is left out all the same.
func TestWrittenAgain(t *testing.T) {
	w := newWorld(t, checksOnly)
	svc := shop(func(*state.Service) {})
	w.serve(svc, []netip.AddrPort{at(1), at(2)}, nil)
	w.Store.MarkSynced()
	w.answers[at(1)] = probe.Refused
	w.wants("before", w.settle(web), at(2))
	w.now = w.now.Add(time.Minute)
	w.publish(w.now) // nothing waits
	w.Store.DeleteService(web)
	w.Store.SetService(svc, nil)
	w.plan(web)
	w.now = w.now.Add(time.Minute)
	w.publish(w.now)
	w.wants("after", w.plan(web), at(2))
}

// TestUnreadableMemory: the process starts without it.
func TestUnreadableMemory(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Memory = faulty{} })
	w.serve(shop(func(*state.Service) {}), []netip.AddrPort{at(1)}, nil)
	w.answers[at(1)] = probe.Refused
	w.settle(web)
	if w.ledger.save(&w.mu, time.Now()); !w.ledger.unsaved {
		t.Error("what could not be saved is not tried again")
	}
}

type faulty struct{}

func (faulty) Load() ([]Remembered, error) { return nil, errors.New("injected") }

func (faulty) Save([]Remembered) error { return errors.New("injected") }

// TestMemoryOfTheGone: failures of a Service that was deleted while no process ran are saved until all objects are known, and
// forgotten then. Failures of others that the store does not know yet stay.
func TestMemoryOfTheGone(t *testing.T) {
	w := newWorld(t, checksOnly)
	gone := state.Name{Namespace: "shop", Name: "gone"}
	for _, n := range []state.Name{web, gone} {
		w.ledger.of(n).published = state.Health{{Protocol: state.TCP, At: at(1)}}
	}
	w.ledger.of(gone).recalled = true
	if list := w.ledger.failures(); len(list) != 2 {
		t.Errorf("before all objects are known: %+v", list)
	}
	w.Store.MarkSynced()
	if list := w.ledger.failures(); len(list) != 1 || list[0].Service != web || w.ledger.services[gone] != nil {
		t.Errorf("afterwards: %+v", list)
	}
}

// TestMemoryIsShared: one tenant has more failures than are saved. Those of another are saved all the same; what could not be
// saved is saved as soon as there is room on the disk, without another change.
func TestMemoryIsShared(t *testing.T) {
	disk := &fullDisk{full: true}
	w := newWorld(t, func(o *Options) { o.Memory = disk })
	many := make(state.Health, 6000)
	for i := range many {
		many[i] = state.Failure{Protocol: state.TCP, At: target(i).At}
	}
	for i := range 20 {
		w.ledger.of(state.Name{Namespace: "tenant", Name: string(rune('a' + i))}).published = many
	}
	w.ledger.of(web).published = many[:1]
	w.ledger.unsaved = true
	now := time.Now()
	for range 3 {
		now = now.Add(time.Hour)
		w.ledger.save(&w.mu, now)
	}
	if disk.tries != 3 {
		t.Errorf("tried %d times to save", disk.tries)
	}
	disk.full = false
	w.ledger.save(&w.mu, now.Add(time.Hour))
	own := slices.ContainsFunc(disk.saved, func(r Remembered) bool { return r.Service == web })
	if len(disk.saved) != maxRemembered || !own {
		t.Errorf("%d failures are saved, the one of another tenant: %t", len(disk.saved), own)
	}
	w.ledger.save(&w.mu, now.Add(2*time.Hour))
	if disk.tries != 4 {
		t.Error("saved again without a change")
	}
}

// fullDisk is a Memory that may have no room.
type fullDisk struct {
	full  bool
	tries int
	saved []Remembered
}

func (d *fullDisk) Load() ([]Remembered, error) { return nil, nil }

func (d *fullDisk) Save(list []Remembered) error {
	if d.tries++; d.full {
		return errors.New("no space left on device")
	}
	d.saved = list
	return nil
}
