package endpointhealth

import (
	"context"
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// asker asks endpoints, each in a goroutine, and collects what is to be done with the answers.
type asker struct {
	ask    func(context.Context, *probe.Question) probe.Answer
	permit *permit
	ends   chan func()
}

// one asks an endpoint. Those that must not be asked count as good.
func (a *asker) one(ctx context.Context, q *probe.Question, end func(probe.Answer)) {
	var answer probe.Answer
	if !a.permit.refuses(q.At) {
		q.OnlyThis = a.permit.refuses(netip.AddrPortFrom(q.At.Addr(), probe.HostPort))
		answer = a.ask(ctx, q)
	}
	a.end(ctx, func() { end(answer) })
}

// suspected is the question of this node to an endpoint that clients have doubts about.
func suspected(at netip.AddrPort) *probe.Question {
	return &probe.Question{Target: probe.Target{Protocol: state.TCP, At: at}}
}

// witness asks witnesses. The one of the API server needs no permit.
func (a *asker) witness(ctx context.Context, list []netip.AddrPort, end func(suspicion.Witnesses)) {
	all := suspicion.NoWitness
	faults := make(chan probe.Fault, len(list))
	for _, at := range list {
		go func() { faults <- a.ask(ctx, suspected(at)).Fault }()
	}
	for range list {
		all = suspicion.AllSilent
		if f := <-faults; f == probe.NoFault || f == probe.Refused || f == probe.HostAnswers {
			all = suspicion.SomeAnswer
			break
		}
	}
	a.end(ctx, func() { end(all) })
}

// end hands an answer over. A question that has ended because the process ends has no answer.
func (a *asker) end(ctx context.Context, end func()) {
	if ctx.Err() != nil {
		return
	}
	select {
	case a.ends <- end:
	case <-ctx.Done():
	}
}
