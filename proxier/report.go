package proxier

import (
	"log/slog"
	"slices"

	"github.com/verdict-proxy/verdict/nft"
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

func (t *Totals) add(o *Totals, sign int) {
	for kind, n := range o.Frontends {
		t.Frontends[kind] += sign * n
	}
	t.Endpoints += sign * o.Endpoints
}

// logPass writes a line for what an operator wants to see: the first pass, passes that failed, and on request all.
func (p *Proxier) logPass(r *PassReport) {
	attrs := []any{
		"services", r.Services, "added", r.Result.Added, "deleted", r.Result.Deleted,
		"bytes", r.Result.Bytes, "kernel", r.Result.Kernel, "duration", r.Duration,
	}
	switch {
	case r.Err != nil:
		p.Log.Error("pass not applied; the kernel keeps the previous rules, all changes stay pending",
			append(attrs, "outcome", r.Result.Outcome.String(), "error", r.Err, "retry", p.failures)...)
	case r.Result.Full:
		p.Log.Info("tables written", attrs...)
	default:
		p.Log.Debug("pass applied", attrs...)
	}
}

// problemLog remembers what is wrong with which Service and logs what is new.
type problemLog struct {
	log     *slog.Logger
	current map[state.Name][]state.Problem
	logged  map[state.Problem]bool
}

func newProblemLog(log *slog.Logger) problemLog {
	return problemLog{log: log, current: map[state.Name][]state.Problem{}, logged: map[state.Problem]bool{}}
}

func (l *problemLog) set(name state.Name, problems []state.Problem) {
	if len(problems) == 0 {
		delete(l.current, name)
		return
	}
	l.current[name] = problems
}

// all lists the problems of planning together with those of the sources, and logs those that were not there before.
func (l *problemLog) all(store *state.Store) []state.Problem {
	list := store.Problems()
	for _, problems := range l.current {
		list = append(list, problems...)
	}
	slices.SortFunc(list, compareProblems)
	list = slices.Compact(list)
	present := make(map[state.Problem]bool, len(list))
	for _, pr := range list {
		present[pr] = true
		if !l.logged[pr] {
			l.log.Warn("object cannot be honored in full; the rest of it and all other objects stay in force",
				"kind", pr.Kind, "object", pr.Object.String(), "field", pr.Field, "reason", pr.Reason)
		}
	}
	l.logged = present
	return list
}

func compareProblems(a, b state.Problem) int {
	for _, c := range [][2]string{{a.Kind, b.Kind}, {a.Object.String(), b.Object.String()}, {a.Field, b.Field}, {a.Reason, b.Reason}} {
		if c[0] != c[1] {
			if c[0] < c[1] {
				return -1
			}
			return 1
		}
	}
	return 0
}

var _ Ruleset = (*nft.Engine)(nil)
