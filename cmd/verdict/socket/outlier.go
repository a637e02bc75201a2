package socket

import (
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
)

// Outlier is one thing that is known of an endpoint: it does not answer, fails its check, or is a backup.
type Outlier struct {
	Addr     string   `json:"endpoint"`
	Services []string `json:"services"`      // that have it
	Bad      bool     `json:"bad,omitempty"` // it is suspected, failed, or fails its check
	Text     string   `json:"text"`          // what people read about it: what it is, since when, and why
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
