package proxier

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Totals count what is served.
type Totals struct {
	Frontends [plan.NodePort + 1]int // by plan.FrontendKind
	Endpoints int                    // each once for every service port and family that it serves
}

func (t *Totals) count(port *plan.Port) {
	for _, f := range port.Frontends {
		t.Frontends[f.Kind]++
	}
	t.Endpoints += max(len(port.Cluster), len(port.Local))
}

// engineOf is the place of a port's engine in the totals.
func engineOf(port *plan.Port) int {
	if port.IPVS {
		return 1
	}
	return 0
}

// count adds or takes away what a Service contributes to the totals.
func (p *Proxier) count(s *served, sign int) {
	for engine := range p.totals {
		p.totals[engine].add(&s.totals[engine], sign)
	}
}

func (t *Totals) add(o *Totals, sign int) {
	for kind, n := range o.Frontends {
		t.Frontends[kind] += sign * n
	}
	t.Endpoints += sign * o.Endpoints
}

// sayAgain is how often an error that goes on is logged.
const sayAgain = time.Minute

// logPass writes a line for what an operator wants to see: the first pass, passes that failed, and on request all.
func (p *Proxier) logPass(r *PassReport) {
	attrs := []any{
		"services", r.Services, "added", r.Result.Added, "deleted", r.Result.Deleted,
		"bytes", r.Result.Bytes, "virtualServers", r.Operations, "kernel", r.Result.Kernel, "duration", r.Duration,
	}
	switch {
	case r.Err != nil:
		level := slog.LevelError
		if r.Err.Error() == p.lastError && p.lastEnd.Sub(p.lastSaid) < sayAgain {
			level = slog.LevelDebug // said before; the retries go on
		} else {
			p.lastSaid = p.lastEnd
		}
		p.lastError = r.Err.Error()
		p.Log.Log(context.Background(), level, "pass not applied; the kernel keeps the previous rules, all changes stay pending",
			append(attrs, "outcome", r.Result.Outcome.String(), "error", r.Err, "failures", p.failures)...)
		return
	case r.Result.Full:
		p.Log.Info("tables written", attrs...)
	default:
		p.Log.Debug("pass applied", attrs...)
	}
	if p.lastError != "" {
		p.Log.Info("passes apply again")
		p.lastError = ""
	}
}

// problemLog remembers what is wrong with which Service and logs what is new.
type problemLog struct {
	log     *slog.Logger
	current map[state.Name][]state.Problem
	logged  map[state.Problem]bool
	changed bool   // current has changed since the last report
	sources uint64 // state of the sources' problems at the last report
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

// report lists the problems of planning together with those of the sources, and logs those that were not there before.
// Without a change there is nothing to report.
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
	slices.SortFunc(list, compareProblems)
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

func compareProblems(a, b state.Problem) int {
	return cmp.Or(
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name),
		cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason),
	)
}
