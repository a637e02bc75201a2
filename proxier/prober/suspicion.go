package prober

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
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

// hostPort is a port at which nobody listens (tcpmux). A reset from there shows that the host lives.
const hostPort = 1

// suspect asks an endpoint under suspicion. It connects again after each stagger without an answer, and last of all to another
// port of the host. The first answer of the endpoint counts.
func (a *Asker) suspect(ctx context.Context, at netip.AddrPort) endpointhealth.Answer {
	within, cancel := context.WithCancel(ctx)
	ends := make(chan tried, attempts+1)
	begun, open := 0, 0
	try := func() {
		host := begun == attempts
		to, left := at, patience-time.Duration(begun)*stagger
		if host {
			to = netip.AddrPortFrom(at.Addr(), hostPort)
		}
		begun++
		open++
		go func() { ends <- tried{host, a.try(within, to, time.Now().Add(left))} }()
	}
	defer func() {
		for cancel(); open > 0; open-- { // so that the question leaves nothing behind
			<-ends
		}
	}()
	next := time.NewTicker(stagger)
	defer next.Stop()
	worst := endpointhealth.Answer{Fault: endpointhealth.NoAnswer, Why: "no answer within " + patience.String()}
	hostAnswers := false
	for try(); open > 0; {
		select {
		case <-next.C:
			if begun <= attempts {
				try()
			}
			continue
		case end := <-ends:
			open--
			fault := end.answer.Fault
			answered := fault == endpointhealth.NoFault || fault == endpointhealth.Refused
			switch {
			case end.host:
				hostAnswers = answered
			case answered:
				return end.answer
			case fault != endpointhealth.NoAnswer:
				worst = end.answer
			}
		}
		if open == 0 && begun <= attempts { // those before ended at once; the next one may not
			try()
		}
	}
	if hostAnswers {
		return endpointhealth.Answer{Fault: endpointhealth.HostAnswers, Why: "no answer, but its host answers"}
	}
	return worst
}

// tried is the end of one attempt.
type tried struct {
	host   bool // to another port of the host
	answer endpointhealth.Answer
}

// try makes one connection, and closes it. An address that cannot be reached is no fault of this node's routes: the kernel
// says so if nobody has the address, or a router does.
func (a *Asker) try(ctx context.Context, to netip.AddrPort, deadline time.Time) endpointhealth.Answer {
	c, err := a.open(ctx, endpointhealth.Target{Protocol: state.TCP, At: to}, deadline)
	if err == nil {
		c.close()
		return endpointhealth.Answer{Connected: true}
	}
	if errors.Is(err, unix.EHOSTUNREACH) && ctx.Err() == nil {
		return endpointhealth.Answer{Fault: endpointhealth.NoAnswer, Why: "its host cannot be reached"}
	}
	return answerOf(ctx, err, &state.HealthCheck{Timeout: patience})
}
