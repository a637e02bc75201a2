package planning

import (
	"log/slog"
	"maps"
	"time"

	"golang.org/x/time/rate"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// The kernel takes one transaction at a time. One that changes a Service with tens of thousands of elements takes it
// 50 ms, and changes of all other Services wait. So that no tenant can make them wait all the time, the large changes of
// a namespace have a rate. When it has used its credit up, all its changes wait until the rate allows the next one. What
// changed several times meanwhile is written once. Planning keeps the others waiting as well, so its time counts, whether or
// not it changes anything.

// largeChange is the number of elements, and of operations of IPVS, from which what a pass changes for a namespace counts. The
// kernel needs milliseconds for as many, and takes no changes of others meanwhile.
const largeChange = 1000

// perChange is how much processor time counts as a change. A change of 192,000 elements occupies the loop for 1.1 s.
const perChange = 5 * time.Microsecond

// Pauses decides when a namespace has to wait.
type Pauses struct {
	log     *slog.Logger
	rate    int // changes of the kernel a second
	most    int // credit of a namespace without large changes
	credits map[string]*credit
	said    report.Lately // the namespaces whose pauses were logged
}

// credit is what a namespace may still change.
type credit struct {
	*rate.Limiter
	until time.Time // the end of the latest pause
}

// sayPause is how often the pauses of one namespace are logged.
const sayPause = 10 * time.Minute

// NewPauses returns Pauses in which no namespace has changed anything.
func NewPauses(log *slog.Logger, b *config.Budgets) Pauses {
	return Pauses{
		log: log, rate: b.NamespaceChanges, most: b.NamespaceElements, credits: map[string]*credit{}, said: report.Lately{},
	}
}

// bill is what a pass cost because of one namespace.
type bill struct {
	changes  int // also those for which planning stands
	planning time.Duration
	most     int // of the changes, what the most expensive Service needed
	service  state.Name
}

// bills returns what a pass that made a draft cost because of each namespace, where it is much. Whoever takes a frontend from
// another Service, or gives it back, pays for what that changes at the other one. What no change of a Service asked for costs
// nobody anything.
func bills(changed map[state.Name]int, d *Draft) map[string]bill {
	services := map[state.Name]int{}
	for name, n := range changed {
		if payer := d.payer(name); d.asked(payer) {
			services[payer] += n
		}
	}
	list := map[string]bill{}
	for name, took := range d.Took {
		services[name] += int(took / perChange)
		list[name.Namespace] = bill{planning: list[name.Namespace].planning + took}
	}
	for name, n := range services {
		b := list[name.Namespace]
		if b.changes += n; n > b.most || n == b.most && name.Compare(b.service) < 0 {
			b.most, b.service = n, name
		}
		list[name.Namespace] = b
	}
	maps.DeleteFunc(list, func(_ string, b bill) bool { return b.changes < largeChange })
	return list
}

// mayBeMuch reports whether a pass cost much, whoever pays. Nearly all passes did not, and need no bills.
func mayBeMuch(changed map[state.Name]int, d *Draft) bool {
	sum := 0
	for _, n := range changed {
		sum += n
	}
	for _, took := range d.Took {
		sum += int(took / perChange)
	}
	return sum >= largeChange
}

// Charge takes what a pass that made a draft cost from the credits of the namespaces, if it is much. It returns the namespaces
// that have to wait from now on, and how long.
func (p *Pauses) Charge(changed map[state.Name]int, d *Draft, now time.Time) (wait map[string]time.Duration) {
	if !mayBeMuch(changed, d) {
		return nil
	}
	list := bills(changed, d)
	if len(list) == 0 {
		return nil
	}
	maps.DeleteFunc(p.credits, func(_ string, c *credit) bool { return c.TokensAt(now) == float64(p.most) })
	wait = map[string]time.Duration{}
	for namespace, b := range list {
		c := p.credits[namespace]
		if c == nil {
			c = &credit{Limiter: rate.NewLimiter(rate.Limit(p.rate), p.most)}
			p.credits[namespace] = c
		}
		var pause time.Duration
		for left := b.changes; left > 0; left -= p.most { // a reservation is for as much as the whole credit at most
			pause = c.ReserveN(now, min(left, p.most)).DelayFrom(now)
		}
		if pause > 0 && !now.Before(c.until) {
			c.until, wait[namespace] = now.Add(pause), pause
			p.say(&b, pause, now)
		}
	}
	return wait
}

func (p *Pauses) say(b *bill, d time.Duration, now time.Time) {
	if !p.said.Due(b.service.Namespace, sayPause, now) {
		return
	}
	p.log.Warn("a namespace changes too much; its changes wait, and those of all others go on",
		"namespace", b.service.Namespace, "service", b.service.Name, "changes", b.changes, "planning", b.planning.Round(time.Millisecond),
		"limit", p.rate, "flag", "--max-namespace-changes", "wait", d.Round(time.Millisecond), "next", "the latest state of its Services is applied then")
}
