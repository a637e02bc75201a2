package prober

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Asker asks endpoints. Its methods may be called from any goroutine. It does not limit how many questions there are at
// once: that is for the caller, who knows whose they are. A question has one socket (one under suspicion up to four), and
// a goroutine that waits without a thread.
type Asker struct {
	forget   func(conntrack.Query)
	sessions tls.ClientSessionCache
}

// New returns an Asker. Each question leaves a flow in the kernel's table of connections; it is handed to forget when its
// socket is closed, however the question ended.
func New(forget func(conntrack.Query)) *Asker {
	return &Asker{forget: forget, sessions: tls.NewLRUClientSessionCache(maxSessions)}
}

// Cost returns how much time of a core a question takes, for this process and the kernel: what BenchmarkAsk measured for the
// dearest of its usual ends, rounded up. A good answer over TCP or UDP costs half as much.
func Cost(k state.CheckKind) time.Duration {
	return [...]time.Duration{
		state.CheckOff: 400 * time.Microsecond, state.CheckTCP: 70 * time.Microsecond, state.CheckHTTP: 90 * time.Microsecond,
		state.CheckHTTPS: 350 * time.Microsecond, state.CheckDNS: 70 * time.Microsecond,
	}[k]
}

// Ask asks an endpoint, and returns when the answer is there, the time is over, or the context ends.
func (a *Asker) Ask(ctx context.Context, q *probe.Question) probe.Answer {
	if q.Check.Kind == state.CheckOff {
		return a.suspect(ctx, q)
	}
	c, err := a.open(ctx, q.Target, time.Now().Add(q.Check.Timeout))
	if err != nil {
		return answerOf(ctx, err, &q.Check)
	}
	defer c.close()
	switch q.Check.Kind {
	case state.CheckHTTP:
		err = askWeb(c, q.At, &q.Check)
	case state.CheckHTTPS:
		err = a.askTLS(ctx, c, q.At, &q.Check)
	case state.CheckDNS:
		err = askDNS(c, q.Protocol == state.TCP, &q.Check)
		c.late = err != nil && q.Protocol == state.UDP
	}
	answer := answerOf(ctx, err, &q.Check)
	answer.Connected = q.Protocol == state.TCP || answer.Fault == probe.NoFault || answer.Fault == probe.WrongAnswer
	return answer
}

// answerError is an answer that is wrong.
type answerError string

func (e answerError) Error() string { return string(e) }

// ownError is about this node's own socket.
type ownError struct{ error }

// answerOf says in a few words why a question failed.
func answerOf(ctx context.Context, err error, c *state.HealthCheck) probe.Answer {
	if err == nil {
		return probe.Answer{}
	}
	fault, why := probe.WrongAnswer, state.Clip(err.Error(), 120) // crypto/tls does not understand it
	_, own := errors.AsType[ownError](err)
	errno, ofKernel := errors.AsType[unix.Errno](err)
	switch {
	case ctx.Err() != nil:
		fault, why = probe.OtherFault, "nobody waits for the answer"
	case own:
		fault = probe.OtherFault
	case errors.Is(err, os.ErrDeadlineExceeded):
		fault = probe.NoAnswer
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		fault, why = probe.Closed, "it closed the connection without an answer"
	case ofKernel:
		fault = faultOf(errno)
	}
	switch fault {
	case probe.NoAnswer:
		why = "no answer within " + c.Timeout.String()
	case probe.Refused:
		why = "connection refused"
	case probe.Reset:
		why = "connection reset"
	case probe.NoRoute:
		why = "no route to it"
	}
	return probe.Answer{Fault: fault, Why: why}
}

// faultOf says what an error of a socket means for the question. Those that are not listed are this node's own, such as no free port,
// too many open files, no memory, or a filter of programs: then the question could not be asked.
func faultOf(e unix.Errno) probe.Fault {
	switch e {
	case unix.ETIMEDOUT:
		return probe.NoAnswer
	case unix.ECONNREFUSED:
		return probe.Refused
	case unix.ECONNRESET, unix.ECONNABORTED, unix.EPIPE:
		return probe.Reset
	case unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.ENONET, // no route, or ICMP errors
		unix.EINVAL, unix.EACCES, // a route "blackhole" or "prohibit", as packets of clients meet them, too; EACCES: ICMPv6 as well
		unix.EPROTO, unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EMSGSIZE: // rare ICMP errors
		return probe.NoRoute
	}
	return probe.OtherFault
}

// One question opens several connections, because a packet may get lost on the way there or back: with 2 % of loss, all
// of them fail once in 16,000 questions. The first answer counts. The patience is more than twice the round trip of a
// slow path (300 ms).
const (
	attempts = 3
	stagger  = 50 * time.Millisecond
	patience = 650 * time.Millisecond
)

// suspect asks an endpoint under suspicion. It connects again after each stagger without an answer, and last of all to another
// port of the host. The first answer of the endpoint counts; its silence does not if one of the connections could not be tried.
func (a *Asker) suspect(ctx context.Context, q *probe.Question) probe.Answer {
	at := q.At
	ctx, cancel := context.WithCancel(ctx)
	var tries sync.WaitGroup
	defer tries.Wait() // so that the question leaves nothing behind
	defer cancel()
	ends, host, deadline := make(chan probe.Answer, attempts), make(chan probe.Answer, 1), time.Now().Add(patience)
	for i := range attempts {
		tries.Go(func() { ends <- a.try(ctx, at, time.Duration(i)*stagger, deadline) })
	}
	if q.OnlyThis {
		host <- probe.Answer{Fault: probe.NoAnswer}
	} else {
		tries.Go(func() { host <- a.try(ctx, netip.AddrPortFrom(at.Addr(), probe.HostPort), attempts*stagger, deadline) })
	}
	worst := probe.Answer{Fault: probe.NoAnswer, Why: "no answer within " + patience.String()}
	for range attempts {
		switch end := <-ends; {
		case end.Good(), end.Fault == probe.Refused:
			return end
		case end.Fault != probe.NoAnswer && worst.Fault != probe.OtherFault:
			worst = end
		}
	}
	switch end := <-host; {
	case worst.Fault == probe.OtherFault:
	case end.Good(), end.Fault == probe.Refused:
		return probe.Answer{Fault: probe.HostAnswers, Why: "no answer, but its host answers"}
	case end.Fault == probe.OtherFault: // nobody knows whether its host answers
		return end
	}
	return worst
}

// try makes one connection after some time, and closes it. An address that cannot be reached is no fault of this node's routes:
// the kernel says so if nobody has the address, or a router does.
func (a *Asker) try(ctx context.Context, to netip.AddrPort, after time.Duration, deadline time.Time) probe.Answer {
	select {
	case <-ctx.Done():
		return answerOf(ctx, ctx.Err(), nil)
	case <-time.After(after):
	}
	c, err := a.open(ctx, probe.Target{Protocol: state.TCP, At: to}, deadline)
	if err == nil {
		c.close()
		return probe.Answer{Connected: true}
	}
	if errors.Is(err, unix.EHOSTUNREACH) && ctx.Err() == nil {
		return probe.Answer{Fault: probe.NoAnswer, Why: "its host cannot be reached"}
	}
	return answerOf(ctx, err, &state.HealthCheck{Timeout: patience})
}
