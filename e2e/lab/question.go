package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
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
	SCTP Protocol = unix.IPPROTO_SCTP // one INIT and its answer, by hand, on every kernel
)

// KernelSCTP is SCTP with the kernel's own implementation (module sctp), which few kernels have. Its associations last,
// as connections of TCP do. Only ports of World.ServeKernelSCTP answer.
const KernelSCTP Protocol = 1<<8 | SCTP

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
	case SCTP, KernelSCTP:
		return "sctp"
	}
	return fmt.Sprint(int(p))
}

// serverSpeaksFirst reports whether the server sends its first answer without a question.
func (p Protocol) serverSpeaksFirst() bool { return p == TCP || p == KernelSCTP }

// Outcome is the end of a connection.
type Outcome string

// The outcomes.
const (
	Answered    Outcome = "answered"
	Refused     Outcome = "refused"     // a TCP reset, or "port unreachable"
	Dropped     Outcome = "dropped"     // no answer
	Unreachable Outcome = "unreachable" // from the gateway: the proxy does not serve the address
	Broken      Outcome = "broken"      // reset in the middle
	Failed      Outcome = "failed"      // an error that no test expects
)

// Question is one request.
type Question struct {
	Protocol Protocol
	From     netip.Addr // zero: the kernel chooses
	Ports    PortRange  // zero: the kernel chooses among all
	To       netip.AddrPort
	Patience time.Duration // how long to wait for an answer
}

// PortRange bounds the source port of a connection, inclusive.
type PortRange struct{ Low, High uint16 }

// OwnPorts is the range of the n-th of several clients that share an address, n < 4. No port is in two ranges, a
// NodePort, or among those that the kernel chooses otherwise.
//
// IPVS needs this. It finds the connection of an answer by the client's address and port and the real server. When
// a client uses one port for two virtual servers with the same real server, answers of the first connection get the
// address of the second one, and the first one breaks.
func OwnPorts(n int) PortRange {
	const size = 2500
	low := uint16(20000 + n*size)
	return PortRange{Low: low, High: low + size - 1}
}

func (q Question) String() string {
	if q.From.IsValid() {
		return fmt.Sprintf("%s from %s to %s", q.Protocol, q.From, q.To)
	}
	return fmt.Sprintf("%s to %s", q.Protocol, q.To)
}

// Result is the outcome of a request.
type Result struct {
	Outcome  Outcome
	Answer   Answer
	Client   netip.Addr // the address that the client used
	Took     time.Duration
	Repeated int   // how many packets of TCP the client sent again until it was connected or refused, because they were lost: one after a second, two after three
	Err      error // unless there was an answer
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

func resultOf(err error) Result { return Result{Outcome: OutcomeOf(err), Err: err} }

// OutcomeOf is the outcome of a connection that ended with an error; nil: it was answered.
func OutcomeOf(err error) Outcome {
	is := func(errs ...error) bool {
		return slices.ContainsFunc(errs, func(e error) bool { return errors.Is(err, e) })
	}
	var late net.Error
	switch {
	case err == nil:
		return Answered
	case is(unix.ECONNREFUSED):
		return Refused
	case errors.As(err, &late) && late.Timeout(), errors.Is(err, context.Canceled):
		return Dropped
	case is(unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENONET, unix.EPROTO):
		return Unreachable
	case is(unix.ECONNRESET, unix.EPIPE, io.EOF, io.ErrUnexpectedEOF):
		return Broken
	}
	return Failed
}
