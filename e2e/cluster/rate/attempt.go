package rate

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
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
	Repeated   int            `json:"repeated,omitempty"` // packets of TCP that the client had to send again
	Server     string         `json:"server,omitempty"`   // the name in the answer
	Error      string         `json:"error,omitempty"`
}

// Lost reports whether the connection failed in a way that a proxy can prevent.
func (a *Attempt) Lost() bool {
	return a.Outcome == Refused || a.Outcome == Unreachable || a.Outcome == Timeout || a.Outcome == Failed
}

// handshakeOutcome is the outcome of a connection that the client could not make. A reset that is no refusal came right
// after the handshake.
func handshakeOutcome(err error) Outcome {
	switch {
	case errors.Is(err, unix.ECONNRESET):
		return Reset
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ENONET), errors.Is(err, unix.EPROTO):
		return Unreachable
	case isTimeout(err):
		return Timeout
	}
	return Failed
}

// answerOutcome is the outcome of a connection that failed after its handshake.
func answerOutcome(err error) Outcome {
	switch {
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE), errors.Is(err, io.ErrUnexpectedEOF):
		return Reset
	case errors.Is(err, unix.ECONNREFUSED): // UDP has no handshake
		return Refused
	case isTimeout(err):
		return Silent
	}
	return Failed
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
