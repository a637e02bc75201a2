package endpointhealth

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Report is what happened to the endpoints.
type Report struct {
	Notes    []checks.Note
	Moves    []Move
	Statuses []Status // all endpoints that are suspected or failed
	Answers  map[Answer]int
	NotAsked []string // why questions could not be asked
	Episodes []Episode
	// Checks counts the checks that there are, and Failing those of them that fail.
	Checks, Failing int
	// OnBackups counts the Services of which a pool has only backup endpoints, because no other endpoint is good.
	OnBackups int
	left      int // suspicions that found no room
}

// Answer is the end of a question, as metrics count it. That after a suspicion is of the kind state.CheckOff.
type Answer struct {
	Kind  state.CheckKind
	Fault probe.Fault
}

// CheckFailures lists the bad answers to checks that there are.
func CheckFailures() (list []Answer) {
	for kind := state.CheckTCP; kind <= state.CheckDNS; kind++ {
		for fault := probe.OtherFault; fault <= probe.WrongAnswer; fault++ {
			list = append(list, Answer{kind, fault})
		}
	}
	return list
}

// heard counts an answer.
func (r *Report) heard(q *checks.Question, a probe.Answer) {
	if a.Fault == probe.OtherFault {
		r.NotAsked = append(r.NotAsked, a.Why)
	}
	if r.Answers == nil {
		r.Answers = map[Answer]int{}
	}
	r.Answers[Answer{q.Check.Kind, a.Fault}]++
}

// Episode is the time in which endpoints of a Service are failed. A report has its beginning.
type Episode struct {
	Service state.Name
	Reason  string // of the Event
	Text    string // what happened first
}

// The reasons of Events.
const (
	reasonNotAnswering = "EndpointNotAnswering"
	reasonFailing      = "EndpointFailsCheck"
	reasonStillReady   = "EndpointStillReady"
)

// episodeTime is how long further failures of a Service belong to the first one.
const episodeTime = 10 * time.Minute

// reporter writes log lines, and finds out which episodes begin.
type reporter struct {
	*Options
	episodes map[Episode]time.Time // when they began, without their texts
	swept    time.Time             // when those that are over were forgotten
	left     report.Tally
	notAsked report.Tally
}

// sayAgain is how often something that lasts is logged.
const sayAgain = time.Minute

// write logs what happened, and adds the episodes that begin.
func (l *reporter) write(r *Report) {
	now := time.Now()
	if all := l.left.Add(r.left, sayAgain, now); all > 0 {
		l.Log.Warn("too many endpoints are under suspicion; others are not asked until some of these are cleared", "leftOut", all)
	}
	if len(r.NotAsked) > 0 {
		if all := l.notAsked.Add(len(r.NotAsked), sayAgain, now); all > 0 {
			l.Log.Warn("this node cannot ask endpoints; they stay as good or bad as they are, and are asked again", "questions", all, "error", r.NotAsked[0])
		}
	}
	for i := range r.Notes {
		l.writeNote(r, &r.Notes[i])
	}
	for i := range r.Moves {
		m := &r.Moves[i]
		l.writeMove(m.Service, "endpoints do not answer or fail their check; they get no new connections", m.Out)
		back := "endpoints get connections again"
		if m.Down {
			back = "no endpoint is good; those that fail get connections all the same (on-all-down)"
		}
		l.writeMove(m.Service, back, m.Back)
	}
}

func (l *reporter) writeNote(r *Report, n *checks.Note) {
	s, level, reason, more := &n.Suspect, slog.LevelInfo, "", ""
	attrs := []any{
		"endpoint", s.At.String(), "node", s.Word.Node, "object", s.Service.String(), "noticed", s.Reason.String(), "answer", s.Fault.String(),
	}
	switch n.Kind {
	case checks.CheckFails, checks.CheckPasses:
		l.writeCheck(r, n)
		return
	case checks.SuspicionBegan, checks.SuspicionEnded:
		level = slog.LevelDebug
	case checks.Fell:
		level, attrs, reason = slog.LevelWarn, append(attrs, "held", string(s.Hold)), reasonNotAnswering
	case checks.StillReady:
		level, reason, more = slog.LevelWarn, reasonStillReady, "; "+checks.OnlyHere
	case checks.FellAtOnce:
		level, attrs = slog.LevelWarn, []any{"object", s.Service.String()}
	case checks.NetworkLost, checks.NetworkBack:
		level, attrs = slog.LevelWarn, nil
	}
	l.line(level, s.Service.Namespace, string(n.Kind), attrs)
	if reason != "" {
		l.begin(r, Episode{Service: s.Service, Reason: reason}, n.At, func() string { return l.describe(s) + more })
	}
}

// maxNamed is how many endpoints a line names.
const maxNamed = 10

func (l *reporter) writeMove(name state.Name, text string, list []netip.AddrPort) {
	if len(list) > 0 {
		attrs := []any{"object", name.String(), "endpoints", len(list), "first", list[:min(len(list), maxNamed)]}
		l.line(slog.LevelWarn, name.Namespace, text, attrs)
	}
}

// writeCheck logs that an endpoint fails its check, or passes again.
func (l *reporter) writeCheck(r *Report, n *checks.Note) {
	q, namespace := n.Question, n.Services[0].Namespace
	attrs := []any{
		"endpoint", q.At.String(), "protocol", q.Protocol.String(), "check", q.Check.Kind.String(),
		"object", n.Services[0].String(), "services", len(n.Services),
	}
	if n.Kind == checks.CheckPasses {
		l.line(slog.LevelInfo, namespace, string(n.Kind), attrs)
		return
	}
	l.line(slog.LevelWarn, namespace, string(n.Kind), append(attrs, "why", n.Why))
	for _, name := range n.Services {
		l.begin(r, Episode{Service: name, Reason: reasonFailing}, n.At, func() string {
			return fmt.Sprintf("endpoint %s fails the %s check; it gets no new connections from this node, unless no endpoint "+
				"passes and on-all-down is keep", q.At, q.Check.Kind)
		})
	}
}

// line logs what happened to the endpoints of a namespace; "": to this node.
func (l *reporter) line(level slog.Level, namespace, text string, attrs []any) {
	if !l.Log.Enabled(context.Background(), level) || !l.MayWrite(namespace, time.Now()) {
		return
	}
	l.Log.Log(context.Background(), level, text, attrs...) //nolint:sloglint // the texts are constants of this package
}

// begin adds an episode to a report, unless it only goes on.
func (l *reporter) begin(r *Report, e Episode, now time.Time, text func() string) {
	over := func(_ Episode, began time.Time) bool { return now.Sub(began) >= episodeTime }
	if now.Sub(l.swept) >= sayAgain {
		l.swept = now
		maps.DeleteFunc(l.episodes, over)
	}
	if began, known := l.episodes[e]; !known || over(e, began) {
		l.episodes[e] = now
		e.Text = text()
		r.Episodes = append(r.Episodes, e)
	}
}

// describe tells a tenant of an endpoint that failed, without a detail.
func (l *reporter) describe(s *checks.Suspect) string {
	where := ""
	if s.Word.Node != "" {
		where = " on node " + s.Word.Node
	}
	text := fmt.Sprintf("endpoint %s%s does not accept connections", s.At, where)
	svc, _ := l.Store.Service(s.Service)
	if svc == nil {
		svc = &state.Service{Name: s.Service}
	}
	switch {
	case !l.ejects(svc) && (s.Hold == checks.None || s.Hold == checks.HostAlive): // both the same
		return text + "; it still gets connections, because the mode is observe"
	case s.Hold == checks.HostAlive, s.Hold == checks.NeverReached: // a tenant must not learn whether there is a host
		return text + "; it still gets connections: perhaps only this node cannot reach it"
	case s.Hold != checks.None:
		return text + "; it still gets connections: " + string(s.Hold)
	}
	return text + "; it gets no new connections as far as --max-ejected allows, until it answers again"
}

// State of an endpoint.
type State uint8

// The states.
const (
	StateSuspected   State = iota // it is being asked
	StateFailed                   // it does not answer, or refuses
	StateFailing                  // it fails the check of its Service
	StateBackupInUse              // it is a backup endpoint and gets connections
	StateBackupIdle               // it is a backup endpoint and gets none
)

func (s State) String() string {
	return [...]string{"suspected", "failed", "failing", "backup, in use", "backup, not used"}[s]
}

// Noticed reports whether the kernel noticed the endpoint, and not a check.
func (s State) Noticed() bool { return s <= StateFailed }

// Bad reports whether something is wrong with the endpoint.
func (s State) Bad() bool { return s <= StateFailing }

// Status is one thing that is known of an endpoint of a Service.
type Status struct {
	checks.Suspect                // Hold is also that of a check or of a plan; Since may be unknown; of a backup, Why is about its use
	Protocol       state.Protocol // an endpoint under suspicion is one of TCP
	State          State
	Ejected        bool // by the plan of the Service
}

// Compare orders by endpoint, then by state.
func (s Status) Compare(o Status) int {
	return cmp.Or(s.At.Compare(o.At), cmp.Compare(s.Protocol, o.Protocol), cmp.Compare(s.State, o.State))
}

// suspects describes the endpoints of a Service under suspicion, with what its plan makes of them; those of all Services if it has no
// name.
func suspects(l *ledger, of state.Name) (list []Status) {
	for _, r := range l.checks.Suspects(of) {
		s, why := Status{Suspect: r, Protocol: state.TCP, State: StateSuspected}, checks.Observed
		if is := l.services[r.Service]; is != nil && is.Ejects {
			i, found := checks.Find(is.Choices, state.TCP, r.At)
			if why = checks.Limit; found {
				s.Ejected, why = is.Choices[i].Use == plan.Ejected, cmp.Or(holdOfUse(is.Choices[i].Use), why)
			}
		}
		if r.Down {
			if s.State = StateFailed; !s.Ejected {
				s.Hold = cmp.Or(s.Hold, l.checks.Withheld(&r), why)
			}
		}
		list = append(list, s)
	}
	return list
}

// rowsOf lists the statuses of the endpoints of a Service that fail its check, and of its backups.
func rowsOf(w *watched) (list []Status) {
	if w == nil {
		return nil
	}
	o := w.Others()
	idle := whyIdle(w)
	for i := range w.Choices {
		c := &w.Choices[i]
		row := Status{Suspect: checks.Suspect{Member: checks.Member{Service: w.Name}, At: c.At}, Protocol: c.Protocol}
		if k := w.Checks[i]; k != nil && k.Down {
			failing := row
			failing.State, failing.Record = StateFailing, k.Record
			failing.Hold = cmp.Or(o.Hold(k, c.Local), holdOfUse(c.Use))
			list = append(list, failing)
		}
		switch {
		case !c.Backup:
		case c.Use > plan.KeptShare:
			row.State, row.Why = StateBackupIdle, idle
			list = append(list, row)
		case !w.onBackups.IsZero():
			row.State, row.Since, row.Why = StateBackupInUse, w.onBackups, "no other endpoint is good"
			list = append(list, row)
		}
	}
	return list
}

// whyIdle says why a backup endpoint is not used.
func whyIdle(w *watched) string {
	has := func(uses ...plan.Use) bool {
		return slices.ContainsFunc(w.Choices, func(c plan.Choice) bool { return slices.Contains(uses, c.Use) })
	}
	switch {
	case !w.onBackups.IsZero():
		return "it is bad itself"
	case has(plan.InUse, plan.KeptShare):
		return "another endpoint is good"
	}
	return "no endpoint is good, and on-all-down is " + w.allDown.String()
}

func holdOfUse(u plan.Use) checks.Hold {
	switch u {
	case plan.KeptLast:
		return checks.NobodyGood
	case plan.KeptShare:
		return checks.Limit
	}
	return checks.None
}
