package endpointhealth

import (
	"log/slog"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
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

// ledger has what is known of each Service whose endpoints are looked at. It writes their health into the store, and saves it for
// the next process. Except for save, its caller holds a lock.
type ledger struct {
	store    *state.Store
	suspects *suspicion.Detector
	services map[state.Name]*watched
	behind   map[state.Name]bool // Services whose health the store may not have
	queue    []state.Name        // the same, in the order in which they wait
	paces    *schedule.Rates

	memory   Memory // nil: failures are forgotten when the process ends
	log      *slog.Logger
	unsaved  bool
	nextSave time.Time // when to save again
	failing  bool      // the latest saving failed
}

func newLedger(store *state.Store, m Memory, log *slog.Logger) *ledger {
	l := &ledger{
		store: store, services: map[state.Name]*watched{}, behind: map[state.Name]bool{}, paces: schedule.NewRates(0, 1, paceBurst),
		memory: m, log: log,
	}
	l.recall()
	return l
}

// of is what is known of a Service, from now on.
func (l *ledger) of(name state.Name) *watched {
	is := l.services[name]
	if is == nil {
		is = &watched{name: name}
		l.services[name] = is
	}
	return is
}

// drop forgets a Service that nobody watches.
func (l *ledger) drop(name state.Name) {
	if is := l.services[name]; is != nil && len(is.published) > 0 {
		l.unsaved = true
	}
	delete(l.services, name)
	l.touch(name)
}

// touch notes that the health of a Service may have changed.
func (l *ledger) touch(name state.Name) {
	if !l.behind[name] {
		l.behind[name] = true
		l.queue = append(l.queue, name)
	}
}

// publish writes the health of Services that may have changed. Those that have to wait do not wait for others that come later.
func (l *ledger) publish(now time.Time) {
	queue := l.queue
	l.queue = nil
	for _, name := range queue {
		delete(l.behind, name)
		l.publishOne(name, now)
	}
}

// publishOne writes the health of one Service, or defers it.
func (l *ledger) publishOne(name state.Name, now time.Time) {
	is := l.services[name]
	if is == nil {
		l.store.SetHealth(name, nil)
		return
	}
	if now.Before(is.next) || !l.paces.Left(name.Namespace, now) {
		l.touch(name)
		return
	}
	pace := paceOf(len(is.choices))
	is.next = now.Add(pace)
	if l.update(is, now) {
		l.paces.Take(name.Namespace, pace, now)
	}
	l.store.SetHealth(name, is.published)
}

// update finds out the health of a Service, and reports whether it has changed.
func (l *ledger) update(is *watched, now time.Time) bool {
	health := is.health(l.suspects, now)
	if is.recalled || slices.Equal(health, is.published) {
		return false
	}
	is.published, l.unsaved = health, true
	return true
}

// last finds out the health of Services that wait, for the next process. The store gets nothing any more.
func (l *ledger) last(now time.Time) {
	for _, name := range l.queue {
		if is := l.services[name]; is != nil {
			l.update(is, now)
		}
	}
}
