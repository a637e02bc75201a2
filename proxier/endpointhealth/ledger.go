package endpointhealth

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/plan"
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
// the next process. The caller of all methods but save holds a lock.
type ledger struct {
	*Options
	checks   *checks.Detector
	services map[state.Name]*watched
	behind   map[state.Name]bool // Services whose health the store may not have
	queue    []state.Name        // the same, in the order in which they wait
	paces    *schedule.Rates

	unsaved  bool
	nextSave time.Time // when to save again
	failing  bool      // the latest saving failed
}

func newLedger(o *Options) *ledger {
	l := &ledger{
		Options: o, services: map[state.Name]*watched{}, behind: map[state.Name]bool{}, paces: schedule.NewRates(0, 1, paceBurst),
	}
	l.recall()
	return l
}

// of is what is known of a Service, from now on.
func (l *ledger) of(name state.Name) *watched {
	is := l.services[name]
	if is == nil {
		is = &watched{Pool: checks.Pool{Name: name}}
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
		l.Store.SetHealth(name, nil)
		return
	}
	if now.Before(is.next) || !l.paces.Left(name.Namespace, now) {
		l.touch(name)
		return
	}
	pace := paceOf(len(is.Choices))
	is.next = now.Add(pace)
	if l.update(is, now) {
		l.paces.Take(name.Namespace, pace, now)
	}
	l.Store.SetHealth(name, is.published)
}

// update finds out the health of a Service, and reports whether it has changed.
func (l *ledger) update(is *watched, now time.Time) bool {
	health := l.checks.Health(&is.Pool, is.published, now)
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

const (
	// maxRemembered bounds what is saved. A line of it takes 150 bytes.
	maxRemembered = maxChecks + maxTracked/4
	// saveShare is how much time savings take: a twentieth at most.
	saveShare = 20
)

// recall reads the failures that the previous process saved, and writes them into the store. MarkSynced drops those of
// Services that no longer exist.
func (l *ledger) recall() {
	if l.Memory == nil {
		return
	}
	list, err := l.Memory.Load()
	if err != nil {
		l.Log.Warn("cannot read which endpoints had failed before the restart; they get connections until they fail again", "error", err)
		return
	}
	slices.SortFunc(list, func(a, b Remembered) int { return a.Failure.Compare(b.Failure) })
	for _, r := range list {
		is := l.of(r.Service)
		is.recalled, is.published = true, append(is.published, r.Failure)
	}
	for name, is := range l.services {
		l.Store.SetHealth(name, is.published)
	}
	if len(list) > 0 {
		l.Log.Info("endpoints had failed before the restart; they get no connections until they answer", "endpoints", len(list),
			"services", len(l.services))
	}
}

// save saves the failures if they have changed, and it is time to. It holds the lock except while it writes.
func (l *ledger) save(lock sync.Locker, now time.Time) {
	lock.Lock()
	defer lock.Unlock()
	if l.Memory == nil || !l.unsaved || now.Before(l.nextSave) {
		return
	}
	list := l.failures()
	l.unsaved = false
	lock.Unlock()
	began := time.Now()
	err := l.Memory.Save(list)
	took := time.Since(began)
	lock.Lock()
	l.nextSave = now.Add(saveShare * took)
	if err != nil && !l.failing {
		l.Log.Warn("cannot save which endpoints have failed; after a restart they get connections until they fail again", "error", err)
	}
	l.failing = err != nil
	l.unsaved = l.unsaved || l.failing
}

// failures lists what is saved. If they are too many, namespaces have turns.
func (l *ledger) failures() (list []Remembered) {
	turns := state.NewTurns[state.Name]()
	for name, is := range l.services {
		if is.recalled && l.Store.Synced() && l.Store.Health(name) == nil {
			delete(l.services, name) // it was deleted while no process ran
		} else if len(is.published) > 0 {
			turns.Push(name.Namespace, name)
		}
	}
	for _, name, more := turns.Pop(); more; _, name, more = turns.Pop() {
		health := l.services[name].published
		for _, f := range health[:min(len(health), maxRemembered-len(list))] {
			list = append(list, Remembered{name, f})
		}
	}
	return list
}

// watched is a Service whose endpoints are looked at.
type watched struct {
	checks.Pool
	allDown   state.AllDown
	published state.Health    // what the store knows
	recalled  bool            // published is of the process before, and no plan has had it since
	next      time.Time       // when the store may be told again
	onBackups time.Time       // since when backups are in use; zero: they are not
	problems  []state.Problem // of the latest questions
}

// Move is a change of the endpoints of a Service that its plan ejects.
type Move struct {
	Service   state.Name
	Out, Back []netip.AddrPort
	Down      bool // no endpoint is good
}

// asksAs reports whether both ask the same of the same endpoints.
func (w *watched) asksAs(o *watched) bool {
	sameCheck := w.Check == o.Check || w.Check != nil && o.Check != nil && *w.Check == *o.Check
	return sameCheck && w.Ejects == o.Ejects && slices.EqualFunc(w.Choices, o.Choices, func(a, b plan.Choice) bool {
		return a.At == b.At && a.Protocol == b.Protocol && a.Local == b.Local
	})
}

// chosen records what a plan makes of the endpoints, and returns what has changed.
func (w *watched) chosen(choices []plan.Choice, now time.Time) Move {
	m := Move{Service: w.Name, Out: ejected(choices, w.Choices), Back: ejected(w.Choices, choices)}
	m.Down = slices.ContainsFunc(choices, func(c plan.Choice) bool { return c.Use == plan.KeptLast })
	w.Choices = choices
	backups := slices.ContainsFunc(choices, func(c plan.Choice) bool { return c.Backup && c.Use <= plan.KeptShare }) &&
		slices.ContainsFunc(choices, func(c plan.Choice) bool { return !c.Backup })
	if !backups {
		w.onBackups = time.Time{}
	} else if w.onBackups.IsZero() {
		w.onBackups = now
	}
	return m
}

// ejected lists the endpoints that the first plan ejects, and the other one does not.
func ejected(choices, others []plan.Choice) (list []netip.AddrPort) {
	for _, c := range choices {
		if c.Use != plan.Ejected {
			continue
		}
		if i, found := checks.Find(others, c.Protocol, c.At); !found || others[i].Use != plan.Ejected {
			list = append(list, c.At)
		}
	}
	return list
}
