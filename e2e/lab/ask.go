package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Protocol is an IP protocol number.
type Protocol int

// The protocols of Services.
const (
	TCP  Protocol = unix.IPPROTO_TCP
	UDP  Protocol = unix.IPPROTO_UDP
	SCTP Protocol = unix.IPPROTO_SCTP
)

// ParseProtocol reads tcp, udp, sctp.
func ParseProtocol(s string) (Protocol, error) {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		if p.String() == strings.ToLower(s) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("%q is none of tcp, udp, sctp", s)
}

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprint(int(p))
}

// Outcome is what became of a connection.
type Outcome string

// The outcomes.
const (
	Answered    Outcome = "answered"
	Refused     Outcome = "refused"     // a TCP reset, or "port unreachable"
	Dropped     Outcome = "dropped"     // silence
	Unreachable Outcome = "unreachable" // the gateway does not know the address: the proxy does not serve it
	Broken      Outcome = "broken"      // reset in the middle
	Failed      Outcome = "failed"      // something that no test asks for
)

// Question is one request.
type Question struct {
	Protocol Protocol
	From     netip.Addr // zero: the kernel chooses
	To       netip.AddrPort
	Patience time.Duration // how long silence is waited out
}

// Result is what became of it.
type Result struct {
	Outcome Outcome
	Answer  Answer
	Client  netip.Addr // the address that the client used
	Took    time.Duration
	Err     error // for Failed
}

func (r Result) String() string {
	switch r.Outcome {
	case Answered:
		return fmt.Sprintf("%s (sees source %s)", r.Answer.Name(), r.Answer.Source)
	case Failed:
		return "failed: " + r.Err.Error()
	}
	return string(r.Outcome)
}

// Ask makes a connection, gets one answer and closes it. It works in the namespace of the calling thread.
func Ask(q Question) Result {
	start := time.Now()
	f, err := Open(q)
	var r Result
	if err == nil {
		r = f.exchange(q.Patience, q.Protocol != TCP)
		f.Close()
	} else {
		r = resultOf(err)
	}
	r.Took = time.Since(start)
	return r
}

// Ask does it from inside the namespace.
func (n *Namespace) Ask(q Question) (r Result) {
	err := n.Do(func() error {
		r = Ask(q)
		return nil
	})
	if err != nil {
		return Result{Outcome: Failed, Err: err}
	}
	return r
}

// errSilence is the end of patience.
var errSilence = errors.New("no answer")

func resultOf(err error) Result {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return Result{Outcome: Refused}
	case errors.Is(err, errSilence):
		return Result{Outcome: Dropped}
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENONET):
		return Result{Outcome: Unreachable}
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, errEnd):
		return Result{Outcome: Broken}
	}
	return Result{Outcome: Failed, Err: err}
}
