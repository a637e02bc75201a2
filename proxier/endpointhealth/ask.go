package endpointhealth

import (
	"container/heap"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Questions cost processor time of this node. What they may cost in a second is bounded for the node and for a namespace;
// what comes beyond that is late.
const (
	nodeRate   = 0.1  // of a processor
	tenantRate = 0.05 // of a processor
	// rateBurst is how long a rate may be saved up.
	rateBurst = time.Second
	// Questions that suspicions cause have a rate of their own for each namespace: neither do they make checks late, nor the
	// other way round. When a node dies, many are asked at once.
	doubtRate  = 0.02
	doubtBurst = 10 * time.Second
	// checkPause is the least time between two looks at who is to be asked: the questions of this time are asked together.
	checkPause = 50 * time.Millisecond
)

// rates ration the processor time of questions.
type rates struct {
	ofNode, ofTenant float64 // of a processor; 0: the node has no limit
	burst            time.Duration
	node             bucket
	of               map[string]bucket // by namespace; those that are full are missing
	swept            time.Time
}

// bucket is how much was used of a rate, less what has come back since.
type bucket struct {
	used time.Duration
	at   time.Time // when used was right
}

// newRates returns the rates of checks.
func newRates() *rates {
	return &rates{ofNode: nodeRate, ofTenant: tenantRate, burst: rateBurst, of: map[string]bucket{}}
}

// newTenantRates returns rates of namespaces that take nothing from each other.
func newTenantRates(rate float64, burst time.Duration) *rates {
	return &rates{ofTenant: rate, burst: burst, of: map[string]bucket{}}
}

// spent reports whether a bucket is empty, after it brings it up to date.
func (b *bucket) spent(rate float64, burst time.Duration, now time.Time) bool {
	b.used -= time.Duration(float64(now.Sub(b.at)) * rate)
	b.used, b.at = max(b.used, 0), now
	return b.used >= time.Duration(rate*float64(burst))
}

// exhausted reports whether the node has nothing left for anybody.
func (r *rates) exhausted(now time.Time) bool {
	return r.ofNode > 0 && r.node.spent(r.ofNode, r.burst, now)
}

// left reports whether a namespace has something left.
func (r *rates) left(namespace string, now time.Time) bool {
	b := r.of[namespace]
	return !b.spent(r.ofTenant, r.burst, now)
}

// take takes the cost of a question of a namespace; false: there is nothing left.
func (r *rates) take(namespace string, cost time.Duration, now time.Time) bool {
	b := r.of[namespace]
	if b.spent(r.ofTenant, r.burst, now) || r.exhausted(now) {
		r.of[namespace] = b
		return false
	}
	b.used += cost
	r.node.used += cost
	r.of[namespace] = b
	r.sweep(now)
	return true
}

// sweep forgets namespaces that have not asked for some time.
func (r *rates) sweep(now time.Time) {
	if now.Sub(r.swept) < r.burst {
		return
	}
	r.swept = now
	for namespace, b := range r.of {
		if b.spent(r.ofTenant, r.burst, now); b.used == 0 {
			delete(r.of, namespace)
		}
	}
}

// always is no limit.
func always(string, time.Time) bool { return true }

// checkQuestion is the question of a check.
type checkQuestion struct {
	Question
	of *check
}

// Next returns when Due has something to say; the zero time: never.
func (c *checker) Next(now time.Time) (at time.Time) {
	switch {
	case !c.ready.Empty():
		return now.Add(checkPause)
	case len(c.waiting) > 0:
		return c.waiting[0].next
	}
	return at
}

// Due returns the questions whose time has come, as many as the rates allow. The caller asks each of them, and
// reports the end with Answered. What the rates do not allow is late. Namespaces have turns.
func (c *checker) Due(now time.Time) (list []checkQuestion) {
	c.findReady(now)
	var held []string
	for c.running < maxAsking {
		namespace, is, some := c.ready.Pop()
		switch {
		case !some:
			c.releaseAll(held)
			return list
		case c.checks[is.key] != is:
			continue // nobody wants it any more
		case c.early(is, now):
			continue
		case c.asking[namespace] >= maxAskingOfTenant, !c.rates.take(namespace, c.cost(is.check.Kind), now):
			c.ready.Push(namespace, is)
			c.ready.Hold(namespace)
			held = append(held, namespace)
			continue
		}
		is.asking, is.ready, is.booked = true, false, false
		c.turns[is.place].asked = now
		c.asking[namespace]++
		c.running++
		is.next = now.Add(c.spread(is.check.Interval))
		list = append(list, checkQuestion{Question{Target: is.target, Check: is.check}, is})
	}
	c.releaseAll(held)
	return list
}

func (c *checker) releaseAll(namespaces []string) {
	for _, n := range namespaces {
		c.ready.Release(n)
	}
}

// findReady moves the checks whose time has come from the heap to those that wait for the rates.
func (c *checker) findReady(now time.Time) {
	for len(c.waiting) > 0 && !now.Before(c.waiting[0].next) {
		is := c.waiting[0]
		if at := c.mayAsk(is, now); now.Before(at) {
			is.next = at
			heap.Fix(&c.waiting, 0)
			continue
		}
		heap.Pop(&c.waiting)
		is.ready = true
		c.ready.Push(is.namespace, is)
	}
	if c.ready.Len() <= 2*len(c.checks)+1000 {
		return
	}
	// A tenant whose checks come and go all the time must not make the queue long.
	c.ready = state.NewTurns[*check]()
	for _, is := range c.checks {
		if is.ready {
			c.ready.Push(is.namespace, is)
		}
	}
}

// mayAsk returns from when on a check may be asked.
func (c *checker) mayAsk(is *check, now time.Time) time.Time {
	t := c.turns[is.place]
	switch {
	case !is.booked:
		is.booked = true
		return c.book(t, is.check.Interval, now)
	case !t.asked.IsZero() && now.Sub(t.asked) < is.check.Interval: // the turn before was late
		return t.asked.Add(c.spread(is.check.Interval))
	}
	return now
}

// early puts a check back that is ready, and whose endpoint has just been asked by another one.
func (c *checker) early(is *check, now time.Time) bool {
	at := c.mayAsk(is, now)
	if !now.Before(at) {
		return false
	}
	is.next, is.ready = at, false
	heap.Push(&c.waiting, is)
	return true
}

// firstLooks finds out which endpoints answer this node at all. A network policy may keep the node away from an
// endpoint that serves its clients: then the node's own questions say nothing. Only Services that eject are looked at.
type firstLooks struct {
	of    map[state.Name][]netip.AddrPort
	known map[netip.AddrPort]*firstLook
	queue state.Turns[netip.AddrPort] // so that the many endpoints of a tenant do not keep others waiting
	later []netip.AddrPort            // those that gave no answer; they follow when lookAgain is over
	since time.Time                   // when later got its first one
}

type firstLook struct {
	namespace string // which has turns for it
	services  int
	tries     int // without a good answer
	reached   bool
}

const (
	// looksAtOnce is how many endpoints are looked at in each lookPeriod.
	looksAtOnce = 10
	lookAgain   = 30 * time.Second
	// looksInARow is how often an endpoint is looked at before lookAgain: one answer may get lost, or be late.
	looksInARow = 4
)

func newFirstLooks() firstLooks {
	return firstLooks{
		of: map[state.Name][]netip.AddrPort{}, known: map[netip.AddrPort]*firstLook{}, queue: state.NewTurns[netip.AddrPort](),
	}
}

// set records the endpoints of a Service that ejects, sorted; nil: it does not, or it was deleted.
func (l *firstLooks) set(name state.Name, list []netip.AddrPort) {
	before := l.of[name]
	if slices.Equal(before, list) {
		return
	}
	for _, at := range list {
		if is := l.known[at]; is == nil {
			l.known[at] = &firstLook{namespace: name.Namespace}
			l.push(at)
		} else if !is.reached && is.namespace != name.Namespace {
			l.queue.Push(name.Namespace, at) // each namespace has turns for the endpoints that it has
		}
		l.known[at].services++
	}
	for _, at := range before {
		if l.known[at].services--; l.known[at].services == 0 {
			delete(l.known, at)
		}
	}
	if l.of[name] = list; len(list) == 0 {
		delete(l.of, name)
	}
	l.compact()
}

// push has an endpoint looked at when its turn comes.
func (l *firstLooks) push(at netip.AddrPort) {
	if is := l.known[at]; is != nil && !is.reached {
		l.queue.Push(is.namespace, at)
	}
}

// compact forgets endpoints in the queue that are gone. A tenant whose endpoints come and go all the time must not make
// the queue long.
func (l *firstLooks) compact() {
	if l.queue.Len()+len(l.later) <= 2*len(l.known)+1000 {
		return
	}
	l.queue, l.later = state.NewTurns[netip.AddrPort](), nil
	for at := range l.known {
		l.push(at)
	}
}

// due returns endpoints to look at.
func (l *firstLooks) due(now time.Time) (list []netip.AddrPort) {
	if len(l.later) > 0 && now.Sub(l.since) >= lookAgain {
		for _, at := range l.later {
			l.push(at)
		}
		l.later = nil
	}
	for len(list) < looksAtOnce {
		namespace, at, some := l.queue.Pop()
		if !some {
			break
		}
		if is := l.known[at]; is != nil && !is.reached {
			is.namespace = namespace // the one that has turns soonest
			list = append(list, at)
		}
	}
	return list
}

func (l *firstLooks) ended(at netip.AddrPort, good bool, now time.Time) {
	is := l.known[at]
	switch {
	case is == nil || is.reached:
	case good:
		is.reached = true
	default:
		l.failed(is, at, now)
	}
}

func (l *firstLooks) failed(is *firstLook, at netip.AddrPort, now time.Time) {
	if is.tries++; is.tries%looksInARow != 0 {
		l.push(at)
		return
	}
	if len(l.later) == 0 {
		l.since = now
	}
	l.later = append(l.later, at)
}

// reached reports whether an endpoint answered this node before. Of endpoints that no Service ejects, nothing is known,
// and nothing depends on it.
func (l *firstLooks) reached(at netip.AddrPort) bool {
	is := l.known[at]
	return is == nil || is.reached
}

// answered is the end of a question.
type answered struct {
	inquiry   inquiry
	check     *checkQuestion // nil: it was no check
	answer    Answer
	witnesses Witnesses
	firstLook bool
}

// ask asks everyone whose time has come.
func (m *Monitor) ask(ctx context.Context, looks bool) {
	now := time.Now()
	m.mu.Lock()
	inquiries := m.detector.Due(now)
	checks := m.checker.Due(now)
	var first []netip.AddrPort
	if looks {
		first = m.looks.due(now)
	}
	m.mu.Unlock()
	for _, q := range inquiries {
		go m.inquire(ctx, answered{inquiry: q})
	}
	for _, at := range first {
		go m.inquire(ctx, answered{inquiry: inquiry{At: at}, firstLook: true})
	}
	for i := range checks {
		select {
		case m.work <- &checks[i]:
		default: // all are busy
			go m.check(ctx, &checks[i])
		}
	}
}

func (m *Monitor) inquire(ctx context.Context, a answered) {
	switch {
	case a.inquiry.Witnesses:
		a.witnesses = m.askWitnesses(ctx, a.inquiry.Nodes)
	case m.permit.refuses(a.inquiry.At) == "": // others count as good
		a.answer = m.Ask(ctx, suspicion(a.inquiry.At))
	}
	m.answer(ctx, a)
}

// suspicion is the question of this node to an endpoint that clients have doubts about.
func suspicion(at netip.AddrPort) *Question {
	return &Question{Target: Target{Protocol: state.TCP, At: at}}
}

// idleWorker is how long a goroutine waits for the next check, because the stack of a new one has to grow first.
const idleWorker = 10 * time.Second

// check asks one endpoint after the other.
func (m *Monitor) check(ctx context.Context, q *checkQuestion) {
	timer := time.NewTimer(idleWorker)
	defer timer.Stop()
	for {
		var a Answer // who must not be asked any more counts as good
		if m.permit.refuses(q.At) == "" {
			a = m.Ask(ctx, &q.Question)
		}
		m.answer(ctx, answered{check: q, answer: a})
		timer.Reset(idleWorker)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case q = <-m.work:
		}
	}
}

func (m *Monitor) answer(ctx context.Context, a answered) {
	select {
	case m.answers <- a:
	case <-ctx.Done():
	}
}
