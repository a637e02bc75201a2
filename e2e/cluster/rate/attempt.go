package rate

import (
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Outcome is how a connection ended.
type Outcome string

// The outcomes. A proxy can prevent those before the handshake. When a server process ends, its kernel resets the
// connections that it had accepted and those in its queue; no proxy can prevent that.
const (
	Answered    Outcome = "answered"
	Refused     Outcome = "refused"     // the handshake: a TCP reset, or "port unreachable"
	Unreachable Outcome = "unreachable" // the handshake: another ICMP error
	Timeout     Outcome = "timeout"     // the handshake: no answer
	Reset       Outcome = "reset"       // after the handshake, before the whole answer
	Silent      Outcome = "silent"      // after the handshake: no answer
	Failed      Outcome = "failed"      // an error of the client itself
)

// Attempt is one connection.
type Attempt struct {
	Began      time.Time      `json:"began"`
	Handshake  time.Duration  `json:"handshake"` // 0: there was none
	Took       time.Duration  `json:"took"`
	Target     string         `json:"target"`
	To         netip.AddrPort `json:"to"` // the address of the target
	SourcePort uint16         `json:"port"`
	Outcome    Outcome        `json:"outcome"`
	Repeated   int            `json:"repeated,omitempty"` // packets of TCP that were lost, so that the client sent them again
	Server     string         `json:"server,omitempty"`   // the name in the answer
	Error      string         `json:"error,omitempty"`
}

// Lost reports whether the connection failed in a way that a proxy can prevent.
func (a *Attempt) Lost() bool {
	return a.Outcome == Refused || a.Outcome == Unreachable || a.Outcome == Timeout || a.Outcome == Failed
}

// outcomeOf is the outcome of a connection that ended with an error, or without one. A reset that is no refusal came after the
// handshake.
func outcomeOf(err error, handshake time.Duration) Outcome {
	switch o := lab.OutcomeOf(err); {
	case o == lab.Broken:
		return Reset
	case o == lab.Dropped && handshake > 0:
		return Silent
	case o == lab.Dropped:
		return Timeout
	default:
		return Outcome(o) // the others have the same names
	}
}
