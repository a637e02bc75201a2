package endpointhealth

import (
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// publishPace times the number of endpoints of a Service is the least time between two changes of its health, and all Services
// of a namespace share it beyond paceBurst. While a very large Service is planned and written, others wait, so it pays more:
// one with 50,000 endpoints that flap is planned every twenty seconds.
const (
	publishPace = 80 * time.Microsecond
	veryLarge   = 10_000
	paceBurst   = 8 * time.Second
)

func paceOf(endpoints int) time.Duration {
	return time.Duration(endpoints) * publishPace * time.Duration(max(endpoints, veryLarge)) / veryLarge
}

// publisher writes the health of Services into the store.
type publisher struct {
	store    *state.Store
	keeper   *keeper
	health   func(*watched, time.Time) state.Health
	services map[state.Name]*watched
	behind   map[state.Name]bool // Services whose health the store may not have
	queue    []state.Name        // the same, in the order in which they wait
	paces    *schedule.Rates
}

func newPublisher(store *state.Store, k *keeper, health func(*watched, time.Time) state.Health) publisher {
	return publisher{
		store: store, keeper: k, health: health, services: k.recall(store), behind: map[state.Name]bool{},
		paces: schedule.NewRates(0, 1, paceBurst),
	}
}

// touch notes that the health of Services may have changed.
func (p *publisher) touch(names ...state.Name) {
	for _, name := range names {
		if !p.behind[name] {
			p.behind[name] = true
			p.queue = append(p.queue, name)
		}
	}
}

// publish writes the health of Services that may have changed. Those that have to wait do not wait for others that come later.
func (p *publisher) publish(now time.Time) {
	queue := p.queue
	p.queue = nil
	for _, name := range queue {
		delete(p.behind, name)
		p.publishOne(name, now)
	}
}

// publishOne writes the health of one Service, or defers it.
func (p *publisher) publishOne(name state.Name, now time.Time) {
	is := p.services[name]
	if is == nil {
		p.store.SetHealth(name, nil)
		return
	}
	if now.Before(is.next) || !p.paces.Left(name.Namespace, now) {
		p.touch(name)
		return
	}
	pace := paceOf(len(is.choices))
	is.next = now.Add(pace)
	if p.update(is, now) {
		p.paces.Take(name.Namespace, pace, now)
	}
	p.store.SetHealth(name, is.published)
}

// update finds out the health of a Service, and reports whether it has changed.
func (p *publisher) update(is *watched, now time.Time) bool {
	health := p.health(is, now)
	if is.recalled || slices.Equal(health, is.published) {
		return false
	}
	is.published, p.keeper.unsaved = health, true
	return true
}

// last finds out the health of Services that wait, for the next process. The store gets nothing any more.
func (p *publisher) last(now time.Time) {
	for _, name := range p.queue {
		if is := p.services[name]; is != nil {
			p.update(is, now)
		}
	}
}
