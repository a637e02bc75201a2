package report

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// ProblemLog remembers what cannot be honored of which object, and logs what is new. Its work for a change is
// proportional to the problems of the objects that changed.
type ProblemLog struct {
	log      *slog.Logger
	lines    *Lines
	found    map[state.Name][]state.Problem   // what the loop found out about Services
	changed  map[state.Object]struct{}        // the Services for which found changed since the last report
	reported map[state.Object][]state.Problem // what the last report had
	faulty   map[string]int                   // how many objects of each kind have problems
	fields   fieldCounts
}

// NewProblemLog returns a log to which nothing was reported.
func NewProblemLog(log *slog.Logger, lines *Lines) ProblemLog {
	return ProblemLog{
		log: log, lines: lines, found: map[state.Name][]state.Problem{}, changed: map[state.Object]struct{}{},
		reported: map[state.Object][]state.Problem{}, faulty: map[string]int{}, fields: fieldCounts{},
	}
}

// Set records what the loop found out about a Service.
func (l *ProblemLog) Set(name state.Name, problems ...[]state.Problem) {
	o := state.Object{Kind: "Service", Name: name}
	bounded := state.Bound(o, problems...)
	if slices.Equal(l.found[name], bounded) {
		return
	}
	l.changed[o] = struct{}{}
	if len(bounded) == 0 {
		delete(l.found, name)
		return
	}
	l.found[name] = bounded
}

// Report joins the problems that the loop found with those that the sources found, and logs the new ones. It returns
// false if nothing changed since the last report.
func (l *ProblemLog) Report(store *state.Store) (r Problems, changed bool) {
	for _, o := range store.ChangedProblems() {
		l.changed[o] = struct{}{}
	}
	if len(l.changed) == 0 {
		return Problems{}, false
	}
	for _, o := range slices.SortedFunc(maps.Keys(l.changed), state.Object.Compare) {
		if problems, differ := l.update(o, store); differ {
			r.Changed = append(r.Changed, state.ObjectProblems{Object: o, Problems: problems})
		}
	}
	l.changed = map[state.Object]struct{}{}
	r.Faulty, r.Fields = maps.Clone(l.faulty), maps.Clone(l.fields)
	return r, len(r.Changed) > 0
}

// update brings the problems of one object up to date. It reports whether they differ from the last report.
func (l *ProblemLog) update(o state.Object, store *state.Store) (problems []state.Problem, differ bool) {
	var found []state.Problem
	if o.Kind == "Service" {
		found = l.found[o.Name]
	}
	before := l.reported[o]
	problems = state.Bound(o, store.ProblemsOf(o), found)
	if svc, _ := store.Service(o.Name); o.Kind == "Service" && svc != nil && svc.Short {
		for i := range problems {
			problems[i] = problems[i].InShortForm()
		}
	}
	if slices.Equal(before, problems) {
		return problems, false
	}
	l.write(before, problems)
	l.faulty[o.Kind] += min(len(problems), 1) - min(len(before), 1)
	l.fields.add(before, -1)
	l.fields.add(problems, 1)
	if len(problems) == 0 {
		delete(l.reported, o)
	} else {
		l.reported[o] = problems
	}
	return problems, true
}

// write logs the problems that are new.
func (l *ProblemLog) write(before, problems []state.Problem) {
	for _, p := range problems {
		if p.Kind == "File" || slices.Contains(before, p) { // the source logs files itself, when it reads them
			continue
		}
		if !l.lines.MayWrite(p.Object.Namespace, time.Now()) {
			continue
		}
		l.log.Warn("object cannot be honored in full; the rest of it and all other objects stay in force",
			"kind", p.Kind, "object", p.Object.String(), "field", p.Field, "reason", p.Reason)
	}
}

// fieldCounts count problems by kind and field. Fields have no indexes here. What remains are names that the program
// chose, so there are few.
type fieldCounts map[[2]string]int

// add counts problems; a negative sign takes them out again.
func (c fieldCounts) add(problems []state.Problem, sign int) {
	for _, p := range problems {
		key := [2]string{p.Kind, plainField(p)}
		if c[key] += sign * max(1, p.More); c[key] == 0 {
			delete(c, key)
		}
	}
}

// plainField is the field of a problem without indexes.
func plainField(p state.Problem) string {
	if p.Kind == "File" {
		return "line"
	}
	switch {
	case p.More > 0:
		return "others"
	case p.Field == "":
		return "object"
	}
	var b strings.Builder
	depth := 0
	for _, r := range p.Field {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Lines bounds what the log has about the objects of each namespace in a minute. A tenant who writes ever new faults must
// not fill the log, nor keep those of others out of it. One goroutine at a time may use it.
type Lines struct {
	log     *slog.Logger
	limit   int
	written map[string]int // lines of this minute, by namespace
	minute  time.Time      // when it began
}

// NewLines returns Lines with a limit for each namespace.
func NewLines(log *slog.Logger, limit int) Lines {
	return Lines{log: log, limit: limit, written: map[string]int{}}
}

// MayWrite reports whether the log has room for another line about a namespace. The metrics and the Events tell of what
// is left out.
func (l *Lines) MayWrite(namespace string, now time.Time) bool {
	if now.Sub(l.minute) >= time.Minute {
		for namespace, n := range l.written {
			if n > l.limit {
				l.log.Warn("lines about the objects of one namespace were not logged", "namespace", namespace, "lines", n-l.limit)
			}
		}
		l.written, l.minute = map[string]int{}, now
	}
	l.written[namespace]++
	if l.written[namespace] == l.limit+1 {
		l.log.Warn("too many lines about the objects of one namespace; more are not logged in this minute",
			"namespace", namespace, "limit", l.limit, "flag", "--max-namespace-log-lines")
	}
	return l.written[namespace] <= l.limit
}
