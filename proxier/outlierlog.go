package proxier

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/outlier"
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

// write logs what happened, and adds the episodes that begin.
func (o *Outliers) write(r *OutlierReport) {
	for i := range r.Notes {
		o.writeNote(r, &r.Notes[i])
	}
	if len(r.Notes) > 0 {
		o.endEpisodes(r.Statuses)
	}
	for i := range r.Checks.Notes {
		o.writeCheck(r, &r.Checks.Notes[i])
	}
}

func (o *Outliers) writeNote(r *OutlierReport, n *outlier.Note) {
	namespace, text := n.Service.Namespace, n.Kind.String()
	if len(n.Status.Services) > 0 {
		namespace = n.Status.Services[0].Namespace
	}
	switch n.Kind {
	case outlier.SuspicionBegan, outlier.SuspicionEnded:
		o.line(slog.LevelDebug, namespace, text, statusAttrs(&n.Status))
	case outlier.Failed:
		o.line(slog.LevelWarn, namespace, "an endpoint does not answer", append(statusAttrs(&n.Status), "held", n.Status.Hold.String()))
		o.begun(r, &n.Status)
	case outlier.StillReady:
		o.line(slog.LevelWarn, namespace, text, statusAttrs(&n.Status))
		o.stillReady(r, &n.Status)
	case outlier.Ejected, outlier.Returned:
		o.line(slog.LevelWarn, namespace, text, []any{
			"object", n.Service.String(), "endpoints", len(n.Endpoints), "first", n.Endpoints[:min(len(n.Endpoints), maxNamed)],
		})
	case outlier.FellAtOnce:
		o.line(slog.LevelWarn, namespace, text, []any{"object", n.Service.String()})
	case outlier.NetworkLost, outlier.NetworkBack:
		o.line(slog.LevelWarn, namespace, text, nil)
	default:
		o.line(slog.LevelInfo, namespace, text, statusAttrs(&n.Status))
	}
}

// writeCheck logs that an endpoint fails its check, or passes again.
func (o *Outliers) writeCheck(r *OutlierReport, n *activecheck.Note) {
	attrs := []any{
		"endpoint", n.Target.At.String(), "protocol", n.Target.Protocol.String(), "check", n.Kind.String(),
		"object", n.Services[0].String(), "services", len(n.Services),
	}
	if !n.Failing {
		o.line(slog.LevelInfo, n.Services[0].Namespace, "an endpoint passes its check again", attrs)
		return
	}
	o.line(slog.LevelWarn, n.Services[0].Namespace, "an endpoint fails its check", append(attrs, "why", n.Why))
	maps.DeleteFunc(o.failures, func(_ state.Name, began time.Time) bool { return n.At.Sub(began) >= episodeTime })
	for _, name := range n.Services {
		if _, goesOn := o.failures[name]; goesOn {
			continue
		}
		o.failures[name] = n.At
		r.Episodes = append(r.Episodes, Episode{Service: name, Reason: reasonFailing, Text: fmt.Sprintf(
			"endpoint %s fails the %s check: %s; it gets no new connections from this node, unless no endpoint passes and "+
				"on-all-down is keep", n.Target.At, n.Kind, n.Why)})
	}
}

func statusAttrs(s *outlier.Status) []any {
	return []any{
		"endpoint", s.Endpoint.String(), "node", s.Node, "object", s.Services[0].String(), "services", len(s.Services),
		"noticed", s.Reason.String(), "answer", s.Answer.String(),
	}
}

// maxNamed is how many endpoints a line names.
const maxNamed = 10

// line logs what happened to the endpoints of a namespace; "": to this node.
func (o *Outliers) line(level slog.Level, namespace, text string, attrs []any) {
	if !o.Log.Enabled(context.Background(), level) || !o.lines.MayWrite(namespace, time.Now()) {
		return
	}
	o.Log.Log(context.Background(), level, text, attrs...) //nolint:sloglint // the texts are constants of package outlier
}

// outlierSums logs what is not about one object. A tenant can cause it again and again, so the sum of some time is one
// line.
type outlierSums struct {
	log            *slog.Logger
	left           int       // suspicions that found no room
	leftAt         time.Time // of the latest line about them
	endpoints, cut int       // endpoints whose connections were deleted, and these
	cutAt          time.Time
	failedAt       time.Time // of the latest line about a failed deletion
}

func (s *outlierSums) add(r *OutlierReport, now time.Time) {
	s.left, s.endpoints, s.cut = s.left+r.Left, s.endpoints+r.Cut, s.cut+r.Deleted
	if s.left > 0 && now.Sub(s.leftAt) >= sayAgain {
		s.log.Warn("too many endpoints are under suspicion; others are not asked until some of these are cleared", "leftOut", s.left)
		s.left, s.leftAt = 0, now
	}
	if r.CutError != nil && now.Sub(s.failedAt) >= sayAgain {
		s.log.Error("cannot delete all connections without an answer; clients of dead endpoints wait longer than they need to",
			"endpoints", r.Cut, "error", r.CutError)
		s.failedAt = now
	}
	if s.endpoints > 0 && now.Sub(s.cutAt) >= passLogPeriod {
		s.log.Info("connections without an answer were deleted; their clients reach other endpoints", "endpoints", s.endpoints,
			"connections", s.cut)
		s.endpoints, s.cut, s.cutAt = 0, 0, now
	}
}

// begun adds the Services for which an episode begins.
func (o *Outliers) begun(r *OutlierReport, s *outlier.Status) {
	for _, name := range s.Services {
		if _, goesOn := o.episodes[name]; goesOn {
			continue
		}
		o.episodes[name] = false
		r.Episodes = append(r.Episodes, Episode{Service: name, Reason: reasonNotAnswering, Text: o.describe(name, s)})
	}
}

// stillReady adds the Services that are not told yet, in this episode, that perhaps only this node cannot reach an endpoint.
func (o *Outliers) stillReady(r *OutlierReport, s *outlier.Status) {
	for _, name := range s.Services {
		if o.episodes[name] {
			continue
		}
		o.episodes[name] = true
		r.Episodes = append(r.Episodes, Episode{
			Service: name, Reason: reasonStillReady, Text: o.describe(name, s) + "; " + outlier.OnlyHere,
		})
	}
}

func (o *Outliers) describe(name state.Name, s *outlier.Status) string {
	where := ""
	if s.Node != "" {
		where = " on node " + s.Node
	}
	text := fmt.Sprintf("endpoint %s%s does not accept connections (%s)", s.Endpoint, where, s.Answer)
	var asked state.OutlierMode
	if svc, _ := o.Store.Service(name); svc != nil {
		asked = svc.Outliers.Mode
	}
	switch {
	case s.Hold != outlier.None:
		return text + "; it still gets connections: " + s.Hold.String()
	case o.modeOf(name, asked) == state.OutlierEject:
		return text + "; it gets no new connections as far as --max-ejected allows, until it answers again"
	}
	return text + "; it still gets connections, because the mode is observe"
}

// endEpisodes ends the episodes of Services without a failed endpoint.
func (o *Outliers) endEpisodes(statuses []outlier.Status) {
	failed := map[state.Name]bool{}
	for i := range statuses {
		if statuses[i].State == outlier.StateFailed {
			for _, name := range statuses[i].Services {
				failed[name] = true
			}
		}
	}
	for name := range o.episodes {
		if !failed[name] {
			delete(o.episodes, name)
		}
	}
}
