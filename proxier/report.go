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
	// Pending reports since when changes wait for the kernel.
	Pending(since time.Time)
	PassDone(PassReport)
	Problems([]state.Problem)
	FlowsCleaned([]conntrack.Result)
}

// PassReport tells what one pass did.
type PassReport struct {
	Started  time.Time
	Duration time.Duration
	Services int // planned in this pass
	Result   dataplane.Result
	// Totals counts what each engine serves after the pass.
	Totals dataplane.TotalsByEngine
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
	failed map[string]time.Time
}

func newErrorLog(log *slog.Logger) errorLog {
	return errorLog{log: log, failed: map[string]time.Time{}}
}

// report writes a line for what an operator wants to see: passes that wrote everything, passes that failed, and on request all.
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
	}
	if l.last != "" {
		l.log.Info("passes apply again")
		l.last = ""
	}
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
		if _, said := l.failed[text]; said {
			continue
		}
		if lines++; lines > maxFailures {
			l.log.Error("IPVS did not make more changes; the first ones were logged", "failures", len(failures))
			return
		}
		l.failed[text] = now
		l.log.Error("IPVS did not make a change", "service", f.Service.String(), "object", f.Object, "error", f.Err, "next", f.Next)
	}
}

// problemLog remembers what cannot be honored of which Service, and logs what is new.
type problemLog struct {
	log     *slog.Logger
	current map[state.Name][]state.Problem
	logged  map[state.Problem]bool
	changed bool   // current has changed since the last report
	sources uint64 // Store.ProblemChanges at the last report
}

func newProblemLog(log *slog.Logger) problemLog {
	return problemLog{log: log, current: map[state.Name][]state.Problem{}, logged: map[state.Problem]bool{}}
}

func (l *problemLog) set(name state.Name, problems []state.Problem) {
	if slices.Equal(l.current[name], problems) {
		return
	}
	l.changed = true
	if len(problems) == 0 {
		delete(l.current, name)
		return
	}
	l.current[name] = problems
}

// report lists all problems, those that the loop found and those that the sources found. It logs the new ones. It returns
// false when nothing changed since the last report.
func (l *problemLog) report(store *state.Store) (list []state.Problem, changed bool) {
	sources := store.ProblemChanges()
	if !l.changed && sources == l.sources {
		return nil, false
	}
	l.changed, l.sources = false, sources
	list = store.Problems()
	for _, problems := range l.current {
		list = append(list, problems...)
	}
	slices.SortFunc(list, state.Problem.Compare)
	list = slices.Compact(list)
	present := make(map[state.Problem]bool, len(list))
	for _, pr := range list {
		present[pr] = true
		if !l.logged[pr] && pr.Kind != "File" { // the source logs those itself, when it reads the file
			l.log.Warn("object cannot be honored in full; the rest of it and all other objects stay in force",
				"kind", pr.Kind, "object", pr.Object.String(), "field", pr.Field, "reason", pr.Reason)
		}
	}
	l.logged = present
	return list, true
}
