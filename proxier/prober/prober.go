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

// answerOf says in a few words why a question failed.
func answerOf(ctx context.Context, err error, c *state.HealthCheck) probe.Answer {
	fault, why := probe.OtherFault, ""
	var bad answerError
	switch {
	case err == nil:
		fault = probe.NoFault
	case ctx.Err() != nil:
		why = "nobody waits for the answer"
	case errors.As(err, &bad):
		fault, why = probe.WrongAnswer, string(bad)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		fault, why = probe.NoAnswer, "no answer within "+c.Timeout.String()
	case errors.Is(err, unix.ECONNREFUSED):
		fault, why = probe.Refused, "connection refused"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		fault, why = probe.Reset, "connection reset"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ENETDOWN):
		fault, why = probe.NoRoute, "no route to it"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		fault, why = probe.Closed, "it closed the connection without an answer"
	default:
		why = state.Clip(err.Error(), 120)
	}
	return probe.Answer{Fault: fault, Why: why}
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
// port of the host. The first answer of the endpoint counts.
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
		switch end := <-ends; end.Fault {
		case probe.NoFault, probe.Refused:
			return end
		case probe.NoAnswer:
		default:
			worst = end
		}
	}
	if end := <-host; end.Fault == probe.NoFault || end.Fault == probe.Refused {
		return probe.Answer{Fault: probe.HostAnswers, Why: "no answer, but its host answers"}
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
