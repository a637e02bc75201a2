package endpointhealth

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// kernel reads what the kernel noticed. But for refusals, it is for the goroutine of Run.
type kernel struct {
	*permit
	refusals atomic.Bool // a Service has asked for it
	seen     map[Suspicion]bool
	failing  bool // the latest reading failed
}

const (
	// noticePeriod is how often a Monitor reads what the kernel noticed.
	noticePeriod = 200 * time.Millisecond
	// elementTime is how long it takes to read one suspicion: 25 ms for 16,384, and to judge it.
	elementTime = 2 * time.Microsecond
)

// read returns what the kernel noticed since the last call, and about how much processor time that took. The time is not measured:
// on a busy node, a reading waits for a processor more often than it has one.
func (k *kernel) read() ([]Suspicion, time.Duration) {
	list, err := k.Suspicions(k.refusals.Load())
	if failed := err != nil; failed != k.failing {
		k.failing = failed
		if failed {
			k.Log.Error("cannot read which endpoints do not answer; trying again", "every", noticePeriod, "error", err)
		} else {
			k.Log.Info("reading which endpoints do not answer works again")
		}
	}
	return k.fresh(list), time.Duration(len(list)) * elementTime
}

// fresh returns those of the suspicions that are new, or have more packets, since the last call.
func (k *kernel) fresh(list []Suspicion) (out []Suspicion) {
	before := k.seen
	k.seen = make(map[Suspicion]bool, len(list))
	for _, s := range list {
		if k.refuses(s.Endpoint) {
			continue
		}
		if k.seen[s] = true; !before[s] {
			out = append(out, s)
		}
	}
	return out
}

// asker asks endpoints, each in a goroutine, and collects what is to be done with the answers.
type asker struct {
	*permit
	ends chan func()
}

// one asks an endpoint. Those that must not be asked count as good.
func (a *asker) one(ctx context.Context, q *probe.Question, end func(probe.Answer)) {
	var answer probe.Answer
	if !a.refuses(q.At) {
		q.OnlyThis = a.refuses(netip.AddrPortFrom(q.At.Addr(), probe.HostPort))
		answer = a.Ask(ctx, q)
	}
	a.end(ctx, func() { end(answer) })
}

// witness asks witnesses, until their answers decide. API servers need no permit.
func (a *asker) witness(ctx context.Context, list []witness, end func(checks.Witnesses)) {
	answers, asked := make(chan witness, len(list)), map[string]bool{}
	for _, of := range list {
		asked[of.namespace] = true
		go func() {
			of.fault = a.Ask(ctx, &probe.Question{Target: probe.Target{Protocol: state.TCP, At: of.at}}).Fault
			answers <- of
		}()
	}
	v := votes{heard: map[string]bool{}}
	for range list {
		v.add(<-answers)
		if v.server == checks.SomeAnswer || !asked[""] && v.say(len(asked)) == checks.SomeAnswer {
			break // the word of an API server comes before others
		}
	}
	a.end(ctx, func() { end(v.say(len(v.heard))) })
}

// votes are what witnesses answered.
type votes struct {
	heard  map[string]bool // namespaces, and whether a witness of them answers
	server checks.Witnesses
	alone  bool // one was asked whose silence counts alone
}

func (v *votes) add(of witness) {
	is := of.fault == probe.NoFault || of.fault == probe.Refused || of.fault == probe.HostAnswers
	switch {
	case of.fault == probe.OtherFault:
		return // it could not be asked
	case of.namespace != "":
		v.heard[of.namespace] = v.heard[of.namespace] || is
	case is:
		v.server = checks.SomeAnswer
	case v.server == checks.NoWitness:
		v.server = checks.AllSilent
	}
	v.alone = v.alone || of.alone
}

// say judges the answers. An API server that answers decides, and so does half of the namespaces, of which two must answer if the API
// servers are silent. So no tenant turns ejection off by endpoints that are silent, nor on by endpoints that are really on this node.
func (v *votes) say(namespaces int) checks.Witnesses {
	answer, least := 0, max(1, (namespaces+1)/2)
	for _, is := range v.heard {
		if is {
			answer++
		}
	}
	if v.server == checks.AllSilent {
		least = max(2, least)
	}
	switch {
	case v.server == checks.SomeAnswer, answer >= least:
		return checks.SomeAnswer
	case v.alone, len(v.heard) > 1:
		return checks.AllSilent
	}
	return checks.NoWitness
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
