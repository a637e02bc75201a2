package conntrack

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

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
	return tr.Stale()
}

// fakeTable is a kernel with faults.
type fakeTable struct {
	entries   []entry
	filters   bool // like 5.8 and newer
	dumpErr   error
	removeErr error
	dumps     int
	removed   []string
}

func (f *fakeTable) dump(family state.Family, to *Frontend, fn func(*entry)) error {
	f.dumps++
	for i := range f.entries {
		e := &f.entries[i]
		if state.FamilyOf(e.Dst.Addr()) != family || f.filters && (!e.udp || to != nil && !to.passes(e)) {
			continue
		}
		fn(e)
	}
	return f.dumpErr
}

func (f *fakeTable) dumpUnanswered(family state.Family, fn func(*entry)) error {
	return f.dump(family, nil, fn)
}

func (f *fakeTable) remove(_ state.Family, keys [][]byte) (int, error) {
	for _, k := range keys {
		f.removed = append(f.removed, string(k))
	}
	return len(keys), f.removeErr
}

func (f *fakeTable) close() error { return nil }

func fakeEntry(key, line string, udp bool) entry {
	return entry{Flow: flow(line), udp: udp, key: []byte(key)}
}

func newFakeTable() *fakeTable {
	return &fakeTable{entries: []entry{
		fakeEntry("a", "10.96.0.10:53 10.0.0.1:53", true),
		fakeEntry("b", "10.96.0.11:53 10.0.0.1:53", true),
		fakeEntry("c", "10.96.0.12:53 10.0.0.1:53", true),
		fakeEntry("tcp", "10.96.0.10:53 10.0.0.1:53", false),
	}}
}

// TestKernelWithoutFilters: a kernel before 5.8 answers each question with the whole table. Then Clean asks only once,
// and flows to other frontends stay.
func TestKernelWithoutFilters(t *testing.T) {
	s := stale(service("10.96.0.10:53 10.96.0.11:53>10.0.0.1:53"), service("10.96.0.10:53 10.96.0.11:53>"))
	for _, tt := range []struct {
		filters bool
		dumps   []int // of the first and the second cleaning
	}{{true, []int{2, 2}}, {false, []int{1, 1}}} {
		f := newFakeTable()
		f.filters = tt.filters
		c := &Cleaner{table: f}
		for _, want := range tt.dumps {
			f.dumps, f.removed = 0, nil
			if _, err := c.Clean(s, nil); err != nil {
				t.Fatal(err)
			}
			if slices.Sort(f.removed); !reflect.DeepEqual(f.removed, []string{"a", "b"}) || f.dumps != want {
				t.Errorf("filters %v: removed %v with %d questions, want a and b with %d", tt.filters, f.removed, f.dumps, want)
			}
		}
	}
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

func TestNothingStaleAsksNothing(t *testing.T) {
	f := newFakeTable()
	results, err := (&Cleaner{table: f}).Clean(Stale{}, nodePortAddrs)
	if err != nil || results != nil || f.dumps != 0 {
		t.Errorf("results %v, error %v, %d questions", results, err, f.dumps)
	}
}
