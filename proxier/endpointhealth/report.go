package endpointhealth

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

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

// episodeTime is how long further failures of checks belong to the first one.
const episodeTime = 10 * time.Minute

// Report is what happened to the endpoints.
type Report struct {
	Notes    []Note
	Statuses []Status // all endpoints that are suspected or failed
	Answers  []Fault  // to questions that ended
	Left     int      // suspicions that found no room
	Episodes []Episode
	Checks   CheckReport
	// OnBackups counts the Services of which a pool has only backup endpoints, because no other endpoint is good.
	OnBackups int
}

// CheckReport is what happened to endpoints that are checked.
type CheckReport struct {
	Notes          []CheckNote
	Total, Failing int // checks
	Passed         int // answers since the last report
	Failed         map[CheckFailure]int
}

// CheckFailure is a check that failed, as metrics count it.
type CheckFailure struct {
	Kind  state.CheckKind
	Fault Fault
}

// CheckFailures lists all there are.
func CheckFailures() (list []CheckFailure) {
	for kind := state.CheckTCP; kind <= state.CheckDNS; kind++ {
		for fault := OtherFault; fault <= WrongAnswer; fault++ {
			list = append(list, CheckFailure{kind, fault})
		}
	}
	return list
}

func (r *CheckReport) count(a answered) {
	if a.answer.Good() {
		r.Passed++
		return
	}
	if r.Failed == nil {
		r.Failed = map[CheckFailure]int{}
	}
	r.Failed[CheckFailure{a.check.Check.Kind, a.answer.Fault}]++
}

// tell logs and reports what happened.
func (m *Monitor) tell() {
	m.mu.Lock()
	r := m.report
	m.report = Report{}
	r.Notes, r.Left = append(r.Notes, m.detector.Notes()...), m.detector.Left()
	if len(r.Notes) > 0 {
		r.Statuses = m.suspects(m.detector.tracked)
	}
	r.Checks.Notes = m.checker.Notes()
	r.Checks.Total, r.Checks.Failing = m.checker.Counts()
	r.OnBackups = m.uses
	news := m.uses != m.told
	m.told = m.uses
	m.mu.Unlock()
	m.sayLeft(r.Left, time.Now())
	if news || len(r.Notes)+len(r.Answers)+r.Left+len(r.Checks.Notes)+r.Checks.Passed+len(r.Checks.Failed) > 0 {
		m.write(&r)
		m.Report(r)
	}
}

// sayAgain is how often something that lasts is logged.
const sayAgain = time.Minute

func (m *Monitor) sayLeft(n int, now time.Time) {
	if m.left += n; m.left > 0 && now.Sub(m.leftAt) >= sayAgain {
		m.Log.Warn("too many endpoints are under suspicion; others are not asked until some of these are cleared", "leftOut", m.left)
		m.left, m.leftAt = 0, now
	}
}

// write logs what happened, and adds the episodes that begin.
func (m *Monitor) write(r *Report) {
	for i := range r.Notes {
		m.writeNote(r, &r.Notes[i])
	}
	if len(r.Notes) > 0 {
		m.endEpisodes(r.Statuses)
	}
	for i := range r.Checks.Notes {
		m.writeCheck(r, &r.Checks.Notes[i])
	}
}

func (m *Monitor) writeNote(r *Report, n *Note) {
	namespace, text := n.Service.Namespace, n.Kind.String()
	if len(n.Status.Services) > 0 {
		namespace = n.Status.Services[0].Namespace
	}
	switch n.Kind {
	case SuspicionBegan, SuspicionEnded:
		m.line(slog.LevelDebug, namespace, text, statusAttrs(&n.Status))
	case Failed:
		m.line(slog.LevelWarn, namespace, "an endpoint does not answer", append(statusAttrs(&n.Status), "held", n.Status.Hold.String()))
		m.begun(r, &n.Status)
	case StillReady:
		m.line(slog.LevelWarn, namespace, text, statusAttrs(&n.Status))
		m.stillReady(r, &n.Status)
	case Ejected, Returned:
		m.line(slog.LevelWarn, namespace, text, []any{
			"object", n.Service.String(), "endpoints", len(n.Endpoints), "first", n.Endpoints[:min(len(n.Endpoints), maxNamed)],
		})
	case FellAtOnce:
		m.line(slog.LevelWarn, namespace, text, []any{"object", n.Service.String()})
	case NetworkLost, NetworkBack:
		m.line(slog.LevelWarn, namespace, text, nil)
	default:
		m.line(slog.LevelInfo, namespace, text, statusAttrs(&n.Status))
	}
}

// writeCheck logs that an endpoint fails its check, or passes again.
func (m *Monitor) writeCheck(r *Report, n *CheckNote) {
	attrs := []any{
		"endpoint", n.Target.At.String(), "protocol", n.Target.Protocol.String(), "check", n.Kind.String(),
		"object", n.Services[0].String(), "services", len(n.Services),
	}
	if !n.Failing {
		m.line(slog.LevelInfo, n.Services[0].Namespace, "an endpoint passes its check again", attrs)
		return
	}
	m.line(slog.LevelWarn, n.Services[0].Namespace, "an endpoint fails its check", append(attrs, "why", n.Why))
	if n.At.Sub(m.sweptFailing) >= episodeTime {
		m.sweptFailing = n.At
		maps.DeleteFunc(m.failing, func(_ state.Name, began time.Time) bool { return n.At.Sub(began) >= episodeTime })
	}
	for _, name := range n.Services {
		if began, told := m.failing[name]; told && n.At.Sub(began) < episodeTime {
			continue
		}
		m.failing[name] = n.At
		r.Episodes = append(r.Episodes, Episode{Service: name, Reason: reasonFailing, Text: fmt.Sprintf(
			"endpoint %s fails the %s check; it gets no new connections from this node, unless no endpoint passes and "+
				"on-all-down is keep", n.Target.At, n.Kind)})
	}
}

func statusAttrs(s *Status) []any {
	return []any{
		"endpoint", s.Endpoint.String(), "node", s.Node, "object", s.Services[0].String(), "services", len(s.Services),
		"noticed", s.Reason.String(), "answer", s.Answer.String(),
	}
}

// maxNamed is how many endpoints a line names.
const maxNamed = 10

// line logs what happened to the endpoints of a namespace; "": to this node.
func (m *Monitor) line(level slog.Level, namespace, text string, attrs []any) {
	if !m.Log.Enabled(context.Background(), level) || !m.MayWrite(namespace, time.Now()) {
		return
	}
	m.Log.Log(context.Background(), level, text, attrs...) //nolint:sloglint // the texts are constants of package outlier
}

// begun adds the Services for which an episode begins.
func (m *Monitor) begun(r *Report, s *Status) {
	for _, name := range s.Services {
		if _, goesOn := m.episodes[name]; goesOn {
			continue
		}
		m.episodes[name] = false
		r.Episodes = append(r.Episodes, Episode{Service: name, Reason: reasonNotAnswering, Text: m.describe(name, s)})
	}
}

// stillReady adds the Services that are not told yet, in this episode, that perhaps only this node cannot reach an endpoint.
func (m *Monitor) stillReady(r *Report, s *Status) {
	for _, name := range s.Services {
		if m.episodes[name] {
			continue
		}
		m.episodes[name] = true
		r.Episodes = append(r.Episodes, Episode{
			Service: name, Reason: reasonStillReady, Text: m.describe(name, s) + "; " + OnlyHere,
		})
	}
}

func (m *Monitor) describe(name state.Name, s *Status) string {
	where := ""
	if s.Node != "" {
		where = " on node " + s.Node
	}
	text := fmt.Sprintf("endpoint %s%s does not accept connections", s.Endpoint, where) // tenants read it: no detail
	var asked state.OutlierMode
	if svc, _ := m.Store.Service(name); svc != nil {
		asked = svc.Outliers.Mode
	}
	switch {
	case s.Hold == HostAlive:
		return text + "; it still gets connections: perhaps only this node cannot reach it"
	case s.Hold != None:
		return text + "; it still gets connections: " + s.Hold.String()
	case m.modeOf(name, asked) == state.OutlierEject:
		return text + "; it gets no new connections as far as --max-ejected allows, until it answers again"
	}
	return text + "; it still gets connections, because the mode is observe"
}

// endEpisodes ends the episodes of Services without a failed endpoint.
func (m *Monitor) endEpisodes(statuses []Status) {
	failed := map[state.Name]bool{}
	for i := range statuses {
		if statuses[i].State == StateFailed {
			for _, name := range statuses[i].Services {
				failed[name] = true
			}
		}
	}
	for name := range m.episodes {
		if !failed[name] {
			delete(m.episodes, name)
		}
	}
}

// CheckNote is a change of an endpoint that is checked.
type CheckNote struct {
	Failing  bool // otherwise it passes again
	At       time.Time
	Target   Target
	Kind     state.CheckKind
	Why      string
	Services []state.Name // that ask for the check, sorted
}

// Notes returns what happened since the last call.
func (c *checker) Notes() []CheckNote {
	notes := c.notes
	c.notes = nil
	return notes
}

// take empties a set of Services, and lists them sorted.
func takeNames[V any](set *map[state.Name]V) []state.Name {
	if len(*set) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(*set), state.Name.Compare)
	*set = map[state.Name]V{}
	return names
}

// Counts returns how many checks there are, and how many of them fail.
func (c *checker) Counts() (all, failing int) { return len(c.checks), c.failing }

// off is for a Service whose annotations have no effect, because a flag turns everything off.
func (m *Monitor) off(svc *state.Service) (problems []state.Problem) {
	add := func(annotation, reason string) {
		problems = append(problems, state.Problem{
			Kind: "Service", Object: svc.Name, Field: "metadata.annotations[verdict-proxy.github.io/" + annotation + "]", Reason: reason,
		})
	}
	if mode := svc.Outliers.Mode; !m.detects() && (mode == state.OutlierObserve || mode == state.OutlierEject) {
		add("outlier-detection", "--outlier-detection=off on this node: the annotation has no effect")
	}
	if svc.Check != nil && svc.Check.Kind != state.CheckOff && !m.Settings.ActiveChecks {
		add("health-check", "--active-checks=false on this node: the annotation has no effect")
	}
	return problems
}

// notAsked describes endpoints that are not checked, without what this node knows about their addresses: tenants read it.
func notAsked(name state.Name, excluded, left int) (problems []state.Problem) {
	for _, is := range []struct {
		n   int
		why string
	}{
		{excluded, "this node does not ask their addresses"},
		{left, "this node makes no more checks, or no more of this Service or namespace"},
	} {
		if is.n > 0 {
			problems = append(problems, state.Problem{
				Kind: "Service", Object: name, Field: "metadata.annotations[verdict-proxy.github.io/health-check]",
				Reason: fmt.Sprintf("%d endpoints are not checked and count as good: %s", is.n, is.why),
			})
		}
	}
	return problems
}
