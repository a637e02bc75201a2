package prober

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

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
