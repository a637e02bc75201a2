// Package flows has stale flows removed beside the loop. Package conntrack decides which flows are stale, and removes them.
package flows

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

// Remover removes stale flows from connection tracking, and connections without an answer to endpoints that are left out.
// Several goroutines may call Clean at a time; none is the loop's.
type Remover interface {
	Clean(stale conntrack.Stale, nodePorts []netip.Addr) ([]conntrack.Result, error)
}

// Options configure a Cleaner.
type Options struct {
	Remover Remover
	// Former are frontends of an earlier process that have UDP flows.
	Former []conntrack.Frontend
	// Adopted are frontends whose UDP flows IPVS carries on for an earlier proxy, whatever serves them now.
	Adopted []conntrack.Frontend
	// Waits reports whether the kernel does not have the latest rules of a namespace yet; nil: it has all.
	Waits func(namespace string) bool
	// Pays is called with what the cleanings of a namespace took; nil: nobody asks.
	Pays func(namespace string, took time.Duration)
	Log  *slog.Logger
}

// Cleaner removes such flows beside the loop. The kernel walks its whole table for an answer, which
// takes 12 ms and more, and the next change of the rules must not wait for that. Changes that arrive during a cleaning are
// cleaned afterwards, all together; those of other namespaces, beside it if it takes long.
type Cleaner struct {
	remover   Remover
	waits     func(namespace string) bool
	pays      func(namespace string, took time.Duration)
	tracker   *conntrack.Tracker
	log       *slog.Logger
	nodePorts []netip.Addr     // the addresses on which node ports answer
	applied   bool             // the kernel has the rules of everything that the tracker was told, unless its namespace waits
	running   []*cleaning      // the cleanings that are under way
	done      chan Cleaned     // delivers their ends
	retry     <-chan time.Time // when to start; nil: when something has to be cleaned
	backoff   time.Duration    // after an error
	share     shares
	urgent    shares       // of cleanings that delete connections to endpoints that were left out: their clients wait
	cut       report.Tally // connections without an answer that were deleted
	reset     report.Tally // open connections that end with their next packet
}

// cleaning is one that is under way.
type cleaning struct {
	stale conntrack.Stale
	own   *shares
	began time.Time
}

// Cleanings that take longer than patience do not keep other namespaces waiting. There are maxRunning at a time.
const (
	patience   = 20 * time.Millisecond // as long as the kernel walks over its table without flows
	maxRunning = 4
)

// Cleaned is the end of a cleaning.
type Cleaned struct {
	of      *cleaning
	Results []conntrack.Result
	Err     error
	Took    time.Duration // of a processor; a cleaning that waits for one holds nobody up
}

// New returns a Cleaner that has cleaned nothing.
func New(o Options) *Cleaner {
	tracker := conntrack.NewTracker(o.Former...)
	tracker.Adopt(o.Adopted)
	return &Cleaner{
		remover: o.Remover, waits: o.Waits, pays: o.Pays, tracker: tracker, log: o.Log, done: make(chan Cleaned, maxRunning), // so that no goroutine waits
		share: shares{of: map[string]*threadtime.Bucket{}}, urgent: shares{of: map[string]*threadtime.Bucket{}},
	}
}

// How long the loop waits before it cleans again after an error, doubling up to the maximum.
const (
	firstRetry = time.Second
	maxRetry   = time.Minute
)

// Set passes a Service's new plan and its slices to the tracker; nil: the Service is gone.
func (c *Cleaner) Set(name state.Name, planned *plan.Service, list ...*state.Slice) {
	c.applied = false
	c.tracker.Set(name, planned, list...)
}

// RulesApplied notes that the kernel has the rules of everything that was set, unless its namespace waits, and starts a cleaning if one
// is needed. It cleans nothing of a namespace that waits: the old rules could still make new flows.
func (c *Cleaner) RulesApplied(nodePorts []netip.Addr) {
	c.applied, c.nodePorts = true, nodePorts
	c.tracker.SetNodePortAddresses(nodePorts)
	c.start()
}

// RulesRepaired notes that another process had changed the rules. The next cleaning looks at all flows. It starts at
// once if the kernel has the right rules again; otherwise the next pass starts it.
func (c *Cleaner) RulesRepaired(done bool) {
	c.tracker.Doubt()
	c.applied = c.applied && done
	c.start()
}

// start begins a cleaning when there is something to clean. It does not while another one is running that may be brief, while it has
// to wait, or while the old rules are in force, which could still make new flows: the caller calls it again after each of these.
func (c *Cleaner) start() {
	now := time.Now()
	if c.retry != nil && c.backoff > 0 || !c.applied {
		return
	}
	c.retry = nil
	if n := len(c.running); n > 0 {
		switch rest := c.running[n-1].began.Add(patience).Sub(now); {
		case rest > 0:
			c.retry = time.After(rest)
			return
		case n == maxRunning:
			c.hurry(now)
			return
		}
	}
	urgent, next := c.urgent.ready(c.mayBegin(c.tracker.WaitingLeftOut()), now)
	if len(urgent) > 0 {
		c.begin(c.tracker.BeginLeftOut, urgent, &c.urgent)
		return
	}
	waiting, look := c.tracker.Look(now)
	for _, namespace := range c.tracker.Waiting() {
		waiting[namespace] = true
	}
	ready, later := c.share.ready(c.mayBegin(waiting), now)
	if len(ready) > 0 {
		c.begin(c.tracker.Begin, ready, &c.share)
		return
	}
	if next = earlier(earlier(next, later), look); !next.IsZero() {
		c.retry = time.After(next.Sub(now))
	}
}

// hurry has the cleanings that are under way end early if others wait who need not rest.
func (c *Cleaner) hurry(now time.Time) {
	waiting := c.tracker.WaitingLeftOut()
	urgent, _ := c.urgent.ready(c.mayBegin(waiting), now)
	for _, namespace := range c.tracker.Waiting() {
		waiting[namespace] = true
	}
	if ready, _ := c.share.ready(c.mayBegin(waiting), now); len(ready)+len(urgent) > 0 {
		for _, r := range c.running {
			r.stale.Hurry()
		}
	}
}

// mayBegin leaves out the namespaces that wait for rules, and those that are cleaned.
func (c *Cleaner) mayBegin(namespaces map[string]bool) map[string]bool {
	maps.DeleteFunc(namespaces, func(namespace string, _ bool) bool {
		return c.waits != nil && c.waits(namespace) || slices.ContainsFunc(c.running, func(r *cleaning) bool { return r.stale.Concerns(namespace) })
	})
	return namespaces
}

func (c *Cleaner) begin(list func(namespaces ...string) conntrack.Stale, namespaces []string, own *shares) {
	made := threadtime.Measure()
	one := &cleaning{stale: list(namespaces...), own: own, began: time.Now()}
	listed := made() // a tenant with very many frontends pays for it
	c.running = append(c.running, one)
	c.retry = time.After(patience) // others may wait by then
	go func(stale conntrack.Stale, nodePorts []netip.Addr) {
		took := threadtime.Measure()
		results, err := c.remover.Clean(stale, nodePorts)
		c.done <- Cleaned{of: one, Results: results, Err: err, Took: listed + took()}
	}(one.stale, c.nodePorts)
}

// Done delivers the ends of the cleanings that are under way, for Finish. It is nil if there are none.
func (c *Cleaner) Done() <-chan Cleaned {
	if len(c.running) == 0 {
		return nil
	}
	return c.done
}

// Finish notes the end of a cleaning, and starts the next one if there is something to clean.
func (c *Cleaner) Finish(end Cleaned) {
	c.running = slices.DeleteFunc(c.running, func(r *cleaning) bool { return r == end.of })
	causes := end.of.stale.Causes(end.Took)
	end.of.own.spend(end.Took, causes, time.Now())
	if c.pays != nil {
		for namespace, took := range causes {
			c.pays(namespace, took)
		}
	}
	c.note(end.Results)
	if errors.Is(end.Err, conntrack.ErrHurried) { // what is left waits for the next cleaning
		c.start()
		return
	}
	if end.Err != nil {
		c.failed(end.Err)
		return
	}
	if c.backoff > 0 {
		c.log.Info("stale flows are removed again")
		c.backoff = 0
	}
	if n := c.tracker.Forgotten(); n > 0 {
		c.log.Warn("too many frontends waited for the removal of their UDP flows; some of these flows stay until their clients "+
			"stop sending", "frontends", n)
	}
	c.tracker.End(&end.of.stale)
	c.start()
}

// note logs how many connections were deleted.
func (c *Cleaner) note(results []conntrack.Result) {
	cut, reset, now := 0, 0, time.Now()
	for i := range results {
		cut += results[i].Unanswered
		reset += results[i].Reset
	}
	if n := c.cut.Add(cut, sumPeriod, now); n > 0 {
		c.log.Info("connections without an answer were deleted; their clients reach other endpoints", "connections", n)
	}
	if n := c.reset.Add(reset, sumPeriod, now); n > 0 {
		c.log.Info("open connections to endpoints that are gone or failed end, as on-removal asks", "connections", n)
	}
}

// failed makes the next cleaning wait. It logs only the first of several failures in a row.
func (c *Cleaner) failed(err error) {
	if c.backoff == 0 {
		c.log.Error("cannot remove stale flows; clients that keep sending still reach endpoints that are gone or do not "+
			"answer, and Services that were deleted; trying again until it works", "reason", conntrack.Reason(err), "error", err)
	}
	c.backoff = min(max(firstRetry, 2*c.backoff), maxRetry)
	c.retry = time.After(c.backoff)
}

// Retry delivers a value when a cleaning that has to wait is due, for TryAgain. It is nil if none has to wait.
func (c *Cleaner) Retry() <-chan time.Time { return c.retry }

// TryAgain starts a cleaning after the wait.
func (c *Cleaner) TryAgain() {
	c.retry = nil
	c.start()
}

// A cleaning takes long when many packets with forged sources have filled the kernel's table, and it holds up the packets
// of others. In the long run, the cleanings that a namespace causes take cleanShare of a core at most, unless one takes
// longer than a third of a second, and all of them allShare. A few short ones in a row need no rest: when a node dies, its endpoints fail one after the
// other, and the kernel tells their clients "no route to host" after 3 seconds. Those clients have shares of their own, because
// Services of UDP that change all the time use up the first ones.
const (
	cleanShare = 1. / 20
	cleanBurst = 100 * time.Millisecond
	allShare   = 1. / 4
	allBurst   = time.Second // a tenant that fills the table causes no rest for others
	maxRest    = 6 * time.Second
)

// shares bound the time that cleanings take, by the namespaces that cause them. A namespace that has used its share waits, and
// the others do not wait for it.
type shares struct {
	all threadtime.Bucket
	of  map[string]*threadtime.Bucket // namespaces that have used some of theirs
}

// ready returns the namespaces that need not wait, and when the first one of the others need not; zero: there are none.
func (s *shares) ready(waiting map[string]bool, now time.Time) (ready []string, next time.Time) {
	all := s.all.Rest(allShare, allBurst, now)
	for namespace := range waiting {
		rest := all
		if of := s.of[namespace]; of != nil {
			rest = max(rest, of.Rest(cleanShare, cleanBurst, now))
		}
		if rest > 0 {
			next = earlier(next, now.Add(rest))
		} else {
			ready = append(ready, namespace)
		}
	}
	return ready, next
}

// earlier returns the earlier one of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// spend delays the next cleanings of namespaces that have caused too many. It forgets those that have made up for theirs.
func (s *shares) spend(took time.Duration, causes map[string]time.Duration, now time.Time) {
	spend(&s.all, took, allShare, allBurst, now)
	maps.DeleteFunc(s.of, func(_ string, of *threadtime.Bucket) bool { of.Refill(cleanShare, now); return of.Used == 0 })
	for namespace, part := range causes {
		if s.of[namespace] == nil {
			s.of[namespace] = &threadtime.Bucket{}
		}
		spend(s.of[namespace], part, cleanShare, cleanBurst, now)
	}
}

func spend(of *threadtime.Bucket, took time.Duration, share float64, burst time.Duration, now time.Time) {
	of.Refill(share, now)
	of.Used = min(of.Used+took, burst+time.Duration(share*float64(maxRest)))
}

// sumPeriod is how much time passes at least between two lines about deleted connections.
const sumPeriod = time.Second
