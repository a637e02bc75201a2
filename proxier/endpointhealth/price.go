package endpointhealth

import (
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
	// other way round. When a node dies, many are asked at once. All namespaces together have nodeRate for them.
	doubtRate  = 0.02
	doubtBurst = 10 * time.Second
)

const (
	// checks and all that follows from them are slowed down while the process uses more than mostUsed of a processor.
	mostUsed   = 0.08
	pricePause = time.Second
	// dearest bounds it, because the process has other work as well: passes of others must not end the checks.
	dearest = 8
)

// price is what questions are said to cost. How much they cost really differs between nodes, and with what their answers
// cause: a check that flaps has its Service planned again. So the price rises while the process uses much.
type price struct {
	cost   func(state.CheckKind) time.Duration
	used   func() time.Duration // processor time of this process; nil: nobody knows
	times  float64
	at     time.Time
	before time.Duration
}

func (p *price) of(k state.CheckKind) time.Duration {
	p.correct(time.Now())
	return time.Duration(float64(p.cost(k)) * p.times)
}

// correct looks at what the process used lately.
func (p *price) correct(now time.Time) {
	if p.used == nil || now.Sub(p.at) < pricePause {
		return
	}
	used := p.used()
	if share := float64(used-p.before) / float64(now.Sub(p.at)); !p.at.IsZero() {
		p.times = min(max(1, p.times*share/mostUsed), dearest)
	}
	p.at, p.before = now, used
}
