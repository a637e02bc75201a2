package socket

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// maxPasses is how many passes the journal remembers.
const maxPasses = 200

// maxProblems bounds the answer about problems. Namespaces have turns, so that the many of one do not hide the others.
const maxProblems = 5000

// Journal notes what the loop reports. Any goroutine may use it. A note costs the same however much was noted before.
type Journal struct {
	mu       sync.Mutex
	started  time.Time
	total    uint64
	passes   []notedPass // a ring
	last     string
	leaving  string    // after the latest pass
	since    time.Time // it is so
	waiting  time.Time
	totals   dataplane.AllTotals // after the latest pass
	problems map[state.Object][]state.Problem
}

// notedPass is a pass, and functions that print what it changed.
type notedPass struct {
	Pass
	changes []func() []string
}

// NewJournal returns an empty journal.
func NewJournal() *Journal {
	return &Journal{started: time.Now(), problems: map[state.Object][]state.Problem{}}
}

// PassDone notes a pass.
func (j *Journal) PassDone(r *report.Pass) {
	p := Pass{
		Started: r.Started, Seconds: r.Duration.Seconds(), InKernel: r.Result.Kernel.Seconds(), Services: r.Services,
		Added: r.Result.Added, Deleted: r.Result.Deleted, Operations: r.Result.Operations, Full: r.Result.Full,
		Outcome: r.Result.Outcome.String(),
	}
	if r.Result.Err != nil {
		p.Error = r.Result.Err.Error()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last = p.Error; p.Error == "" {
		if !j.waiting.IsZero() {
			p.Change = r.Started.Add(r.Duration).Sub(j.waiting).Seconds()
		}
		j.waiting = time.Time{}
	}
	j.totals = r.Totals
	if j.leaving == "" {
		j.since = r.Started
	}
	j.leaving = r.Leaving
	noted := notedPass{p, r.Result.Changes}
	noted.Number = j.total + 1
	if len(j.passes) < maxPasses {
		j.passes = append(j.passes, noted)
	} else {
		j.passes[j.total%maxPasses] = noted
	}
	j.total++
}

// Changes are the first changes of a pass, in the syntax of nft and ipvsadm. It reports false if the journal does not
// remember the pass.
func (j *Journal) Changes(number uint64) (lines []string, ok bool) {
	j.mu.Lock()
	i := slices.IndexFunc(j.passes, func(p notedPass) bool { return p.Number == number })
	var print []func() []string
	if i >= 0 {
		print = j.passes[i].changes
	}
	j.mu.Unlock()
	for _, each := range print {
		lines = append(lines, each()...)
	}
	return lines, i >= 0
}

// Pending notes since when a change waits.
func (j *Journal) Pending(since time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting = since
}

// Problems notes the problems of objects that changed.
func (j *Journal) Problems(changed []state.ObjectProblems) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range changed {
		if len(c.Problems) == 0 {
			delete(j.problems, c.Object)
		} else {
			j.problems[c.Object] = c.Problems
		}
	}
}

func (j *Journal) status() Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := Status{Started: j.started, Passes: j.total, LastError: j.last, Waiting: j.waiting, Down: j.totals.Down, Faulty: len(j.problems)}
	if s.Leaving = j.leaving; s.Leaving != "" {
		s.LeavingSince = j.since
	}
	for i := range j.totals.Engines {
		s.Endpoints += j.totals.Engines[i].Endpoints
		for _, n := range j.totals.Engines[i].Frontends {
			s.Frontends += n
		}
	}
	return s
}

// latest lists the passes, the newest first.
func (j *Journal) latest() []Pass {
	j.mu.Lock()
	list := make([]Pass, len(j.passes))
	for i := range j.passes {
		list[i] = j.passes[i].Pass
	}
	j.mu.Unlock()
	slices.SortFunc(list, func(a, b Pass) int { return cmp.Compare(b.Number, a.Number) })
	return list
}

// Found lists the problems of an object (namespace/name); "": of all.
func (j *Journal) Found(name string) (list []state.Problem) {
	found := state.NewTurns[state.ObjectProblems]()
	j.mu.Lock()
	for o, problems := range j.problems {
		if name == "" || o.Name.String() == name {
			found.Push(o.Name.Namespace, state.ObjectProblems{Object: o, Problems: problems})
		}
	}
	j.mu.Unlock()
	for _, of, more := found.Pop(); more && len(list)+len(of.Problems) <= maxProblems; _, of, more = found.Pop() {
		list = append(list, of.Problems...)
	}
	return list
}

func (j *Journal) problemsOf(name string) []Problem {
	list := []Problem{}
	for _, p := range j.Found(name) {
		list = append(list, Problem{Kind: p.Kind, Object: p.Object.String(), Field: p.Field, Reason: p.Reason})
	}
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}
