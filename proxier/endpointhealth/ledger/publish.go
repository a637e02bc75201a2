package ledger

import (
	"log/slog"
	"maps"
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
	PaceBurst   = 8 * time.Second
)

func PaceOf(endpoints int) time.Duration {
	return time.Duration(endpoints) * publishPace * time.Duration(max(endpoints, veryLarge)) / veryLarge
}

// Ledger writes the health of Services into the store, and saves their failures for the next process.
type Ledger struct {
	store    *state.Store
	health   func(*Watched, time.Time) state.Health
	services map[state.Name]*Watched
	behind   map[state.Name]bool // Services whose health the store may not have
	queue    []state.Name        // the same, in the order in which they wait
	paces    *schedule.Rates

	Memory   Memory // nil: failures are forgotten when the process ends
	log      *slog.Logger
	Unsaved  bool
	NextSave time.Time // when to save again
	failing  bool      // the latest saving failed
}

func New(store *state.Store, m Memory, log *slog.Logger, health func(*Watched, time.Time) state.Health) *Ledger {
	p := &Ledger{
		store: store, health: health, services: map[state.Name]*Watched{}, behind: map[state.Name]bool{},
		paces: schedule.NewRates(0, 1, PaceBurst), Memory: m, log: log,
	}
	p.recall()
	return p
}

// Of is what is known of a Service; nil: nobody watches it.
func (p *Ledger) Of(name state.Name) *Watched { return p.services[name] }

// All are the Services that are watched, in no order.
func (p *Ledger) All() []*Watched { return slices.Collect(maps.Values(p.services)) }

// Add adds a Service.
func (p *Ledger) Add(name state.Name) *Watched {
	is := &Watched{Name: name}
	p.services[name] = is
	return is
}

// Drop forgets a Service that nobody watches.
func (p *Ledger) Drop(name state.Name) {
	if is := p.services[name]; is != nil && len(is.Published) > 0 {
		p.Unsaved = true
	}
	delete(p.services, name)
	p.Touch(name)
}

// SaveAgain has toSave list the failures once more.
func (p *Ledger) SaveAgain() { p.Unsaved = true }

// Touch notes that the health of Services may have changed.
func (p *Ledger) Touch(names ...state.Name) {
	for _, name := range names {
		if !p.behind[name] {
			p.behind[name] = true
			p.queue = append(p.queue, name)
		}
	}
}

// Publish writes the health of Services that may have changed. Those that have to wait do not wait for others that come later.
func (p *Ledger) Publish(now time.Time) {
	queue := p.queue
	p.queue = nil
	for _, name := range queue {
		delete(p.behind, name)
		p.publishOne(name, now)
	}
}

// publishOne writes the health of one Service, or defers it.
func (p *Ledger) publishOne(name state.Name, now time.Time) {
	is := p.services[name]
	if is == nil {
		p.store.SetHealth(name, nil)
		return
	}
	if now.Before(is.Next) || !p.paces.Left(name.Namespace, now) {
		p.Touch(name)
		return
	}
	pace := PaceOf(len(is.Choices))
	is.Next = now.Add(pace)
	if p.update(is, now) {
		p.paces.Take(name.Namespace, pace, now)
	}
	p.store.SetHealth(name, is.Published)
}

// update finds out the health of a Service, and reports whether it has changed.
func (p *Ledger) update(is *Watched, now time.Time) bool {
	health := p.health(is, now)
	if is.Recalled || slices.Equal(health, is.Published) {
		return false
	}
	is.Published, p.Unsaved = health, true
	return true
}

// Last finds out the health of Services that wait, for the next process. The store gets nothing any more.
func (p *Ledger) Last(now time.Time) {
	for _, name := range p.queue {
		if is := p.services[name]; is != nil {
			p.update(is, now)
		}
	}
}
