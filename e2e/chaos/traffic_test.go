//go:build e2e

package chaos

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// How often clients ask, and how long they wait. A packet of TCP that is lost is sent again, which counts as a failure where
// no endpoint is frail. Nobody sends a packet of UDP again, so its loss is a failure however long the client waits, and a
// long wait means that a machine that stands still for some seconds loses nothing.
const (
	newPause       = 10 * time.Millisecond
	openPause      = 5 * time.Millisecond
	answerPatience = 20 * time.Second
)

// clientPlaces are where clients of the untouched Services are.
func clientPlaces() []string { return []string{lab.Outside, lab.Node, "a", "d"} }

// traffic is the clients.
type traffic struct {
	ledger *ledger

	mu   sync.Mutex
	seen map[netip.Addr]assigned // by client
}

// assigned is the endpoint of a client, and when it was last seen.
type assigned struct {
	endpoint string
	at       time.Time
}

// startTraffic starts two clients for each place and family: one makes new connections, one keeps them open. They end with
// the test.
func startTraffic(tb testing.TB, w *lab.World, l *ledger) *traffic {
	tb.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t := &traffic{ledger: l, seen: map[netip.Addr]assigned{}}
	var ended sync.WaitGroup
	tb.Cleanup(func() {
		stop()
		ended.Wait()
	})
	for i, name := range clientPlaces() {
		place := w.At(tb, name)
		for _, f := range lab.Families() {
			list := targets(f, name)
			r := rand.New(rand.NewPCG(*seed, uint64(i)<<8|uint64(f)))
			ended.Go(func() { t.inside(place, func() { t.connect(ctx, name, list, r) }) })
			ended.Go(func() { t.inside(place, func() { t.keepOpen(ctx, name, list) }) })
		}
	}
	return t
}

func (t *traffic) inside(place *lab.Namespace, do func()) {
	start := time.Now()
	err := place.Do(func() error {
		do()
		return nil
	})
	if err != nil {
		t.ledger.fail(newConnection, start, "a client could not start: %v", err)
	}
}

// connect makes one connection after the other.
func (t *traffic) connect(ctx context.Context, place string, list []target, r *rand.Rand) {
	for ctx.Err() == nil {
		to := list[r.IntN(len(list))]
		start := time.Now()
		flow := t.open(place, to, newConnection, start)
		t.ledger.madeOne(to.frail, time.Since(start))
		if flow != nil {
			flow.Close()
		}
		time.Sleep(slower(newPause))
	}
}

// open makes a connection and checks who answers. It returns nil if that failed.
func (t *traffic) open(place string, to target, kind string, start time.Time) *lab.Flow {
	q := lab.Question{Protocol: to.protocol, To: to.to, Patience: answerPatience}
	flow, got := lab.OpenAndAsk(q)
	switch {
	case flow == nil, got.Outcome != lab.Answered:
		t.ledger.fail(kind, start, "%s from %s (%s): %s", q, place, to.service, got)
		if flow != nil {
			flow.Close()
		}
		return nil
	case !to.want[got.Answer.Name()]:
		t.ledger.fail(kind, start, "%s from %s (%s): the wrong endpoint answers: %s", q, place, to.service, got)
	case to.sticky:
		t.checkAffinity(got, place, to, start)
	}
	if to.protocol == lab.TCP && !to.frail && time.Since(start) >= time.Second {
		if n, err := flow.Retransmits(); err != nil || n > 0 {
			t.ledger.fail(kind, start, "%s from %s (%s): %d packets were lost first, error %v", q, place, to.service, n, err)
		}
	}
	return flow
}

// checkAffinity compares the endpoint with that of the client's last connection.
func (t *traffic) checkAffinity(got lab.Result, place string, to target, start time.Time) {
	t.mu.Lock()
	before, known := t.seen[got.Client]
	t.seen[got.Client] = assigned{endpoint: got.Answer.Name(), at: start}
	t.mu.Unlock()
	if known && before.endpoint != got.Answer.Name() && !t.ledger.editedSince(before.at) {
		t.ledger.fail(affinityLost, start, "%s from %s (%s): %s answers, and %s did before",
			to.to, place, got.Client, got.Answer.Name(), before.endpoint)
	}
}

// held is a connection that stays open.
type held struct {
	*lab.Flow
	answer lab.Answer
	good   time.Time // of the last answer
}

// keepOpen keeps a connection to each target and asks over it again and again. Those to an endpoint that vanishes would
// rightly end.
func (t *traffic) keepOpen(ctx context.Context, place string, list []target) {
	list = slices.DeleteFunc(slices.Clone(list), func(to target) bool { return to.frail })
	flows := make([]*held, len(list))
	for i := 0; ctx.Err() == nil; i = (i + 1) % len(list) {
		if flows[i] == nil {
			flows[i] = t.hold(place, list[i])
		} else if !t.again(place, list[i], flows[i]) {
			flows[i].Close()
			flows[i] = nil
		}
		time.Sleep(slower(openPause))
	}
	for _, f := range flows {
		if f != nil {
			f.Close()
		}
	}
}

// hold opens a connection that stays open, and remembers who answers.
func (t *traffic) hold(place string, to target) *held {
	start := time.Now()
	flow := t.open(place, to, newConnection, start)
	t.ledger.madeOne(to.frail, time.Since(start))
	if flow == nil {
		return nil
	}
	first := flow.Send(answerPatience)
	if first.Outcome != lab.Answered {
		t.ledger.fail(openConnection, start, "%s to %s from %s (%s): %s", to.protocol, to.to, place, to.service, first)
		flow.Close()
		return nil
	}
	return &held{Flow: flow, answer: first.Answer, good: start}
}

// again asks over an open connection. It reports false if the connection is of no use any more. What broke it happened
// after its last answer.
func (t *traffic) again(place string, to target, h *held) bool {
	start := time.Now()
	got := h.Send(answerPatience)
	t.ledger.askedAgain()
	if got.Outcome == lab.Answered && got.Answer == h.answer {
		h.good = start
		return true
	}
	t.ledger.fail(openConnection, h.good, "%s to %s from %s (%s): %s, and %s answered before",
		to.protocol, to.to, place, to.service, got, h.answer.Name())
	return false
}
