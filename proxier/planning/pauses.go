package planning

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// The kernel takes one transaction at a time. One that changes a Service with tens of thousands of elements takes it
// 50 ms, and changes of all other Services wait. So that no tenant can make them wait all the time, the large changes of
// a namespace have a rate. When it has used its credit up, all its changes wait until the rate allows the next one. What
// changed several times meanwhile is written once.

// largeChange is the number of elements, and of operations of IPVS, from which the change of a Service counts. The kernel
// needs milliseconds for as many, and takes no changes of other Services meanwhile.
const largeChange = 1000

// Pauses decides when a namespace has to wait.
type Pauses struct {
	log     *slog.Logger
	rate    int // changes of the kernel a second
	most    int // credit of a namespace without large changes
	service int // how large the plan of one Service can be
	credits map[string]credit
}

// credit is what a namespace may still change.
type credit struct {
	left  float64
	at    time.Time // when left was right
	until time.Time // the end of the latest pause
	said  time.Time // when a pause was logged
}

// sayPause is how often the pauses of one namespace are logged.
const sayPause = 10 * time.Minute

// NewPauses returns Pauses in which no namespace has changed anything.
func NewPauses(log *slog.Logger, b *config.Budgets) Pauses {
	return Pauses{
		log: log, rate: b.NamespaceChanges, most: b.NamespaceElements, service: b.ServiceFrontends + b.ServiceElements,
		credits: map[string]credit{},
	}
}

// Planned returns what the changes of a namespace had a pass plan beyond one Service of the largest size, as a change of the first
// of them. To plan takes about as long as to write, and a change of one Service may have many others planned: those that lose an
// address to it. These do not pay for that.
func (p *Pauses) Planned(d *Draft) map[state.Name]int {
	if d.Size <= p.service {
		return nil
	}
	sizes, over := map[string]int{}, map[state.Name]int{}
	first := map[string]state.Name{}
	for _, name := range slices.SortedFunc(maps.Keys(d.Caused), state.Name.Compare) {
		if sizes[name.Namespace] += d.Caused[name]; first[name.Namespace] == (state.Name{}) {
			first[name.Namespace] = name
		}
	}
	for namespace, size := range sizes {
		if size > p.service {
			over[first[namespace]] = size - p.service
		}
	}
	return over
}

// Charge takes what a pass changed and planned from the credits of the namespaces, if it is much. It returns the namespaces
// that have to wait from now on, and how long.
func (p *Pauses) Charge(changed, planned map[state.Name]int, now time.Time) (wait map[string]time.Duration) {
	cost := map[state.Name]int{}
	for _, more := range [...]map[state.Name]int{changed, planned} {
		for name, n := range more {
			if n >= largeChange {
				cost[name] += n
			}
		}
	}
	if len(cost) == 0 {
		return nil
	}
	maps.DeleteFunc(p.credits, func(_ string, c credit) bool { return p.refill(c, now).left == float64(p.most) })
	wait = map[string]time.Duration{}
	for name, n := range cost {
		c, ok := p.credits[name.Namespace]
		if !ok {
			c.left = float64(p.most)
		}
		c = p.refill(c, now)
		if c.left -= float64(n); c.left < 0 && !now.Before(c.until) {
			d := time.Duration(-c.left / float64(p.rate) * float64(time.Second))
			c.until = now.Add(d)
			wait[name.Namespace] = d
			p.say(&c, name, n, d, now)
		}
		p.credits[name.Namespace] = c
	}
	return wait
}

// refill adds what has come since the last time.
func (p *Pauses) refill(c credit, now time.Time) credit {
	c.left = min(c.left+now.Sub(c.at).Seconds()*float64(p.rate), float64(p.most))
	c.at = now
	return c
}

func (p *Pauses) say(c *credit, name state.Name, n int, d time.Duration, now time.Time) {
	if now.Sub(c.said) < sayPause {
		return
	}
	c.said = now
	p.log.Warn("a namespace changes too much; its changes wait, and those of all others go on",
		"namespace", name.Namespace, "service", name.Name, "changes", n, "limit", p.rate, "flag", "--max-namespace-changes",
		"wait", d.Round(time.Millisecond), "next", "the latest state of its Services is applied then")
}
