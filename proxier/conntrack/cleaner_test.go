package conntrack

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// stale is what is stale after next replaced old; old nil: the process has just started.
func stale(old, next *plan.Service) Stale {
	tr := NewTracker()
	if old != nil {
		tr.Set(name("web"), old)
		settle(tr)
	}
	tr.Set(name("web"), next)
	return tr.all()
}

// fakeTable is a kernel with faults.
type fakeTable struct {
	entries   []entry
	dumpErr   error
	removeErr error
	dumps     int
	removed   []string
}

func (f *fakeTable) dump(family state.Family, of filter, fn func(*entry)) error {
	f.dumps++
	for i := range f.entries {
		e := &f.entries[i]
		if state.FamilyOf(e.Dst.Addr()) == family && of.passes(e) {
			fn(e)
		}
	}
	return f.dumpErr
}

func (f filter) passes(e *entry) bool {
	return e.TCP == (f.protocol == unix.IPPROTO_TCP) && (f.to.Port() == 0 || e.Dst.Port() == f.to.Port()) &&
		(!f.to.Addr().IsValid() || e.Dst.Addr() == f.to.Addr())
}

func (f *fakeTable) remove(_ state.Family, keys [][]byte) (int, error) {
	for _, k := range keys {
		f.removed = append(f.removed, string(k))
	}
	return len(keys), f.removeErr
}

func (f *fakeTable) Close() error { return nil }

func fakeEntry(key, line string, udp bool) entry {
	e := entry{Flow: flow(line), key: []byte(key)}
	e.TCP = !udp
	return e
}

func newFakeTable() *fakeTable {
	return &fakeTable{entries: []entry{
		fakeEntry("a", "10.96.0.10:53 10.0.0.1:53", true),
		fakeEntry("b", "10.96.0.11:53 10.0.0.1:53", true),
		fakeEntry("c", "10.96.0.12:53 10.0.0.1:53", true),
		fakeEntry("tcp", "10.96.0.10:53 10.0.0.1:53", false),
	}}
}

func TestFaults(t *testing.T) {
	broken := errors.New("broken")
	s := stale(service("10.96.0.10:53>10.0.0.1:53"), service("10.96.0.10:53>"))
	for name, edit := range map[string]func(*fakeTable){
		"reading":  func(f *fakeTable) { f.dumpErr = broken },
		"deleting": func(f *fakeTable) { f.removeErr = broken },
	} {
		f := newFakeTable()
		edit(f)
		results, err := (&Cleaner{table: f}).Clean(s, nil)
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "IPv4 flows of 1 frontends") {
			t.Errorf("%s: error %v", name, err)
		}
		if len(results) != 1 || results[0].Deleted != 1 {
			t.Errorf("%s: what was found before the fault is not deleted: %+v", name, results)
		}
	}
}

// TestFastPathIsCleaned: flows on the fast path are deleted like others, which ends them there.
func TestFastPathIsCleaned(t *testing.T) {
	tcp := service("10.96.0.10:53>")
	tcp.Ports[0].Protocol, tcp.Ports[0].Resets = state.TCP, true
	for want, planned := range map[string]*plan.Service{"a": service("10.96.0.10:53>"), "tcp": tcp} {
		f := newFakeTable()
		for i := range f.entries {
			e := &f.entries[i]
			e.DNAT, e.status = true, statusDNAT|statusSeenReply|statusAssured|statusOffload
		}
		results, err := (&Cleaner{table: f}).Clean(stale(nil, planned), nil)
		if err != nil || len(results) != 1 || strings.Join(f.removed, " ") != want {
			t.Errorf("%s: removed %q, %+v, error %v", want, f.removed, results, err)
		}
	}
}

func TestNothingStaleAsksNothing(t *testing.T) {
	f := newFakeTable()
	results, err := (&Cleaner{table: f}).Clean(Stale{}, nodePortAddrs)
	if err != nil || results != nil || f.dumps != 0 {
		t.Errorf("results %v, error %v, %d questions", results, err, f.dumps)
	}
}

// TestEmpty: stale flows and connections without an answer are both something to look for.
func TestEmpty(t *testing.T) {
	some := indexOf(map[Frontend]target{{Port: 1}: {}})
	for what, s := range map[string]Stale{
		"flows": {targets: some}, "connections": {unanswered: some}, "both": {targets: some, unanswered: some},
	} {
		if s.Empty() {
			t.Errorf("%s: nothing to look for", what)
		}
	}
}

// TestHurried: a cleaning for which others wait deletes some flows, those of namespaces with few flows first, and leaves the rest to
// the next one, which finds it.
func TestHurried(t *testing.T) {
	tr := NewTracker()
	for endpoint := range 2 {
		settle(tr)
		for i, namespace := range []string{"tenant", "shop"} {
			tr.Set(state.Name{Namespace: namespace, Name: "web"}, service(fmt.Sprintf("10.96.0.%d:53>10.0.0.%d:53", 10+i, 1+endpoint)))
		}
	}
	f := &fakeTable{}
	for i := range 3 * atLeast {
		f.entries = append(f.entries, fakeEntry(fmt.Sprint("tenant-", i), "10.96.0.10:53 10.0.0.1:53", true))
	}
	f.entries = append(f.entries, fakeEntry("shop", "10.96.0.11:53 10.0.0.1:53", true))
	for cleaning := 1; len(f.entries) > 0; cleaning++ {
		s := tr.Stale("tenant", "shop")
		if s.Concerns("other") || !s.Concerns("shop") {
			t.Fatal("the wrong namespaces are cleaned")
		}
		if s.Hurry(); cleaning == 3 {
			s = tr.Stale("tenant", "shop") // nobody waits any more
		}
		f.removed = nil
		_, err := (&Cleaner{table: f}).Clean(s, nil)
		if first := cleaning == 1; err != nil != (cleaning < 3) || err != nil && !errors.Is(err, ErrHurried) || first != slices.Contains(f.removed, "shop") {
			t.Fatalf("cleaning %d: %d flows deleted, error %v", cleaning, len(f.removed), err)
		}
		if want := []int{atLeast, atLeast, atLeast + 1}[cleaning-1]; len(f.removed) != want {
			t.Fatalf("cleaning %d: %d flows deleted, want %d", cleaning, len(f.removed), want)
		}
		gone := map[string]bool{}
		for _, key := range f.removed {
			gone[key] = true
		}
		f.entries = slices.DeleteFunc(f.entries, func(e entry) bool { return gone[string(e.key)] })
	}
}
