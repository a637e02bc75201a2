package endpointhealth

import (
	"context"
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// asker asks endpoints, each in a goroutine, and collects the answers.
type asker struct {
	ask     func(context.Context, *probe.Question) probe.Answer
	permit  *permit
	answers chan answered
}

// answered is the end of a question. One of inquiry, check and look is set.
type answered struct {
	inquiry   *suspicion.Inquiry
	check     *checks.Question
	look      netip.AddrPort
	answer    probe.Answer
	witnesses suspicion.Witnesses
}

// one asks an endpoint, and adds its answer to the end of the question. Those that must not be asked count as good.
func (a *asker) one(ctx context.Context, end answered, q *probe.Question) {
	if a.permit.refuses(q.At) == "" {
		q.OnlyThis = a.permit.refuses(netip.AddrPortFrom(q.At.Addr(), probe.HostPort)) != ""
		end.answer = a.ask(ctx, q)
	}
	a.report(ctx, end)
}

// suspected is the question of this node to an endpoint that clients have doubts about.
func suspected(at netip.AddrPort) *probe.Question {
	return &probe.Question{Target: probe.Target{Protocol: state.TCP, At: at}}
}

// witness asks witnesses. The one of the API server needs no permit.
func (a *asker) witness(ctx context.Context, q *suspicion.Inquiry, list []netip.AddrPort) {
	end := answered{inquiry: q, witnesses: suspicion.NoWitness}
	faults := make(chan probe.Fault, len(list))
	for _, at := range list {
		go func() { faults <- a.ask(ctx, suspected(at)).Fault }()
	}
	for range list {
		end.witnesses = suspicion.AllSilent
		if f := <-faults; f == probe.NoFault || f == probe.Refused || f == probe.HostAnswers {
			end.witnesses = suspicion.SomeAnswer
			break
		}
	}
	a.report(ctx, end)
}

// report hands an answer over. A question that has ended because the process ends has no answer.
func (a *asker) report(ctx context.Context, end answered) {
	if ctx.Err() != nil {
		return
	}
	select {
	case a.answers <- end:
	case <-ctx.Done():
	}
}
