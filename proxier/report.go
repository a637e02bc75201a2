package proxier

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Observer hears what the loop does. The loop calls its methods; they must not block.
type Observer interface {
	// Pending reports since when changes wait for the kernel. Changes before the first sync do not count.
	Pending(since time.Time)
	PassDone(PassReport)
	Problems(ProblemReport)
	FlowsCleaned([]conntrack.Result)
	Repaired(RepairReport)
}

// ProblemReport names what cannot be honored.
type ProblemReport struct {
	Changed []state.ObjectProblems // all problems of each object whose problems changed, sorted by object
	Faulty  map[string]int         // how many objects of each kind have problems; kinds that never had any are missing
	Fields  map[[2]string]int      // how many problems each field of a kind has
}

// PassReport tells what one pass did.
type PassReport struct {
	Started  time.Time
	Duration time.Duration
	Services int           // planned in this pass
	Planning time.Duration // the part of Duration until the engines had all plans
	Pauses   int           // namespaces that have to wait from now on, because they changed too much
	Result   dataplane.Result
	// Totals count what each engine serves after the pass.
	Totals dataplane.AllTotals
	// Triggers are the times at which the endpoint controller noted the changes that this pass brought into the kernel.
	Triggers []Trigger
	// HealthChecks are the healthCheckNodePort servers wanted from now on; nil: as before.
	HealthChecks *HealthChecks
	// NodeEligible is false while the Node is being deleted or tainted for deletion.
	NodeEligible bool
}

// sayAgain is how often an error that lasts is logged.
const sayAgain = time.Minute

// errorLog logs passes and what IPVS did not do. An error that lasts is logged once a minute.
type errorLog struct {
	log  *slog.Logger
	last string    // error of the latest failed passes; "": the last pass applied
	said time.Time // when it was logged
	// failed has what IPVS did not do and was logged within the last minute.
	failed  map[string]time.Time
	lines   *Lines // about Services
	passes  passLog
	foreign interferenceLog
}

func newErrorLog(log *slog.Logger, lines *Lines) errorLog {
	return errorLog{log: log, failed: map[string]time.Time{}, lines: lines, passes: passLog{log: log},
		foreign: interferenceLog{log: log}}
}

// report writes a line for what an operator wants to see: passes that changed something, and passes that failed. On
// request it writes a line for each pass.
func (l *errorLog) report(r *PassReport, failures int) {
	l.ipvs(r.Result.Failures)
	attrs := []any{
		"services", r.Services, "added", r.Result.Added, "deleted", r.Result.Deleted,
		"bytes", r.Result.Bytes, "virtualServers", r.Result.Operations, "kernel", r.Result.Kernel, "duration", r.Duration,
	}
	if r.Result.Err != nil {
		level := slog.LevelDebug // an error that was logged before; the retries go on
		now := r.Started.Add(r.Duration)
		if text := r.Result.Err.Error(); text != l.last || now.Sub(l.said) >= sayAgain {
			level, l.last, l.said = slog.LevelError, text, now
		}
		l.log.Log(context.Background(), level, "pass not applied; the kernel keeps the previous rules, all changes stay pending",
			append(attrs, "outcome", r.Result.Outcome.String(), "error", r.Result.Err, "failures", failures)...)
		return
	}
	if r.Result.Full {
		l.log.Info("tables written", attrs...)
	} else {
		l.log.Debug("pass applied", attrs...)
		l.passes.add(r)
	}
	if l.last != "" {
		l.log.Info("passes apply again")
		l.last = ""
	}
}

// repair logs the end of a repair.
func (l *errorLog) repair(r *RepairReport) {
	if r.Result.Err != nil {
		l.log.Error("the tables are not as they should be; trying again with a pass", "outcome", r.Result.Outcome.String(), "error", r.Result.Err)
		return
	}
	l.foreign.repaired(r)
}

// maxFailures bounds the lines about IPVS for one pass.
const maxFailures = 10

// ipvs logs what IPVS did not do.
func (l *errorLog) ipvs(failures []dataplane.Failure) {
	if len(failures) == 0 {
		return
	}
	now, lines := time.Now(), 0
	maps.DeleteFunc(l.failed, func(_ string, said time.Time) bool { return now.Sub(said) >= sayAgain })
	for i := range failures {
		f := &failures[i]
		text := f.Object + f.Err.Error()
		if _, said := l.failed[text]; said || !l.lines.MayWrite(f.Service.Namespace, now) {
			continue
		}
		if lines++; lines > maxFailures {
			l.log.Error("IPVS did not make more changes; the first ones were logged, and each is tried again", "failures", len(failures))
			return
		}
		l.failed[text] = now
		l.log.Error("IPVS did not make a change", "service", f.Service.String(), "object", f.Object, "error", f.Err, "next", f.Next)
	}
}

// problemLog remembers what cannot be honored of which object, and logs what is new. Its work for a change is
// proportional to the problems of the objects that changed.
type problemLog struct {
	log      *slog.Logger
	lines    *Lines
	found    map[state.Name][]state.Problem   // what the loop found out about Services
	changed  map[state.Object]struct{}        // the Services for which found changed since the last report
	reported map[state.Object][]state.Problem // what the last report had
	faulty   map[string]int                   // how many objects of each kind have problems
	fields   fieldCounts
}

func newProblemLog(log *slog.Logger, lines *Lines) problemLog {
	return problemLog{
		log: log, lines: lines, found: map[state.Name][]state.Problem{}, changed: map[state.Object]struct{}{},
		reported: map[state.Object][]state.Problem{}, faulty: map[string]int{}, fields: fieldCounts{},
	}
}

// set records what the loop found out about a Service.
func (l *problemLog) set(name state.Name, problems ...[]state.Problem) {
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

// report joins the problems that the loop found with those that the sources found, and logs the new ones. It returns
// false if nothing changed since the last report.
func (l *problemLog) report(store *state.Store) (r ProblemReport, changed bool) {
	for _, o := range store.ChangedProblems() {
		l.changed[o] = struct{}{}
	}
	if len(l.changed) == 0 {
		return ProblemReport{}, false
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
func (l *problemLog) update(o state.Object, store *state.Store) (problems []state.Problem, differ bool) {
	var found []state.Problem
	if o.Kind == "Service" {
		found = l.found[o.Name]
	}
	before := l.reported[o]
	problems = state.Bound(o, store.ProblemsOf(o), found)
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
func (l *problemLog) write(before, problems []state.Problem) {
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
