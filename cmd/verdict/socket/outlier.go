package socket

import (
	"fmt"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Outlier is one thing that is known of an endpoint: it does not answer, fails its check, or is a backup.
type Outlier struct {
	Addr     string   `json:"endpoint"`
	Services []string `json:"services"`      // that have it
	Bad      bool     `json:"bad,omitempty"` // it is suspected, failed, or fails its check
	Text     string   `json:"text"`          // what people read about it: what it is, since when, and why
}

// noticed reports whether the kernel noticed the endpoint, and not a check.
func noticed(s *endpointhealth.Status) bool {
	return s.State == endpointhealth.StateSuspected || s.State == endpointhealth.StateFailed
}

// isBad reports whether something is wrong with the endpoint.
func isBad(s *endpointhealth.Status) bool {
	return noticed(s) || s.State == endpointhealth.StateFailing
}

// ejected reports whether a Service ejects the endpoint, or any Service if the name is empty.
func ejected(s *endpointhealth.Status, from state.Name) bool {
	return s.Ejected && (from == s.Service || from == state.Name{})
}

// noNew reports whether the endpoint gets no new connections from a Service.
func noNew(s *endpointhealth.Status, from state.Name) bool {
	switch s.State {
	case endpointhealth.StateFailing:
		return s.Hold == suspicion.None
	case endpointhealth.StateBackupIdle:
		return true
	}
	return ejected(s, from)
}

// textOf is what people read about an endpoint: what it is, since when, and why.
func textOf(s *endpointhealth.Status, from state.Name, now time.Time) string {
	text := s.State.String()
	switch {
	case s.State == endpointhealth.StateFailing:
		text = "fails its check"
	case ejected(s, from):
		text = "ejected"
	}
	if !s.Since.IsZero() {
		text += " for " + now.Sub(s.Since).Round(time.Second).String()
	}
	text += ": " + whyOf(s)
	switch {
	case s.Hold == suspicion.None || ejected(s, from):
	case s.State == endpointhealth.StateFailing:
		text += "; it gets connections all the same: " + string(s.Hold)
	default:
		text += "; not ejected: " + string(s.Hold)
	}
	if s.StillReady {
		text += "; " + suspicion.OnlyHere
	}
	return text
}

func whyOf(s *endpointhealth.Status) string {
	switch {
	case !noticed(s):
		return s.Why
	case s.Reason == suspicion.Unanswered:
		return "clients had no answer"
	case s.Reason == suspicion.Refusing:
		return "it reset connections"
	case s.Reason == suspicion.SameNode:
		return "another endpoint of its node did not answer"
	}
	return fmt.Sprint("unknown reason ", uint8(s.Reason))
}

// remark says of an endpoint what the statuses of its Service say.
func (e *Endpoint) remark(list []endpointhealth.Status, from state.Name, now time.Time) {
	var texts []string
	for i := range list {
		s := &list[i]
		texts = append(texts, textOf(s, from, now))
		e.Bad, e.NoNew = e.Bad || isBad(s), e.NoNew || noNew(s, from)
	}
	e.Remark = strings.Join(texts, "; ")
}
