package socket

import (
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
)

// Outlier is one thing that is known of an endpoint: it does not answer, fails its check, or is a backup.
type Outlier struct {
	Addr     string    `json:"endpoint"`
	Protocol string    `json:"protocol"`
	Node     string    `json:"node,omitempty"`
	State    string    `json:"state"` // as endpointhealth.State has them
	Since    time.Time `json:"since,omitzero"`
	// Reason is what the kernel noticed, Answer what the endpoint answered to the latest question. Both are of an endpoint
	// that is suspected or failed; others have Why.
	Reason string `json:"reason,omitempty"`
	Answer string `json:"answer,omitempty"`
	Why    string `json:"why,omitempty"`
	// Hold is why it gets connections although it failed.
	Hold string `json:"notEjectedBecause,omitempty"`
	// Services have it; those in Ejected send it no new connections.
	Services []string `json:"services"`
	Ejected  []string `json:"ejectedFrom,omitempty"`
	// StillReady: it has failed for a minute, and its slice calls it ready.
	StillReady bool   `json:"stillReady,omitempty"`
	Bad        bool   `json:"bad,omitempty"` // it is suspected, failed, or fails its check
	Text       string `json:"text"`          // what people read about it
}

// outlying describes a status.
func outlying(s *endpointhealth.Status, now time.Time) Outlier {
	out := Outlier{
		Addr: s.At.String(), Protocol: s.Protocol.String(), Node: s.Word.Node, State: s.State.String(), Since: s.Since,
		Why: s.Why, Hold: string(s.Hold), Services: []string{s.Service.String()}, Bad: s.State.Bad(),
		StillReady: s.StillReady, Text: textOf(s, now),
	}
	if s.Ejected {
		out.Ejected = out.Services
	}
	if s.State.Noticed() {
		out.Reason, out.Answer = s.Reason.String(), s.Fault.String()
	}
	return out
}

// textOf is what people read about an endpoint: what it is, since when, and why.
func textOf(s *endpointhealth.Status, now time.Time) string {
	text, why := s.State.String(), s.Why
	switch {
	case s.State == endpointhealth.StateFailing:
		text = "fails its check"
	case s.Ejected:
		text = "ejected"
	}
	if s.State.Noticed() {
		why = [...]string{
			checks.Unanswered: "clients had no answer", checks.Refusing: "it reset connections",
			checks.SameNode: "another endpoint of its node did not answer",
		}[s.Reason]
	}
	if !s.Since.IsZero() {
		text += " for " + now.Sub(s.Since).Round(time.Second).String()
	}
	text += ": " + why
	switch {
	case s.Hold == checks.None || s.Ejected:
	case s.State == endpointhealth.StateFailing:
		text += "; it gets connections all the same: " + string(s.Hold)
	default:
		text += "; not ejected: " + string(s.Hold)
	}
	if s.StillReady {
		text += "; " + checks.OnlyHere
	}
	return text
}

// remark says of an endpoint what the statuses of its Service say.
func (e *Endpoint) remark(list []endpointhealth.Status, now time.Time) {
	var texts []string
	for i := range list {
		s := &list[i]
		texts = append(texts, textOf(s, now))
		e.Bad = e.Bad || s.State.Bad()
		e.NoNew = e.NoNew || s.Ejected || s.State == endpointhealth.StateBackupIdle ||
			s.State == endpointhealth.StateFailing && s.Hold == checks.None
	}
	e.Remark = strings.Join(texts, "; ")
}
