// Package flows has stale flows removed beside the loop. Package conntrack decides which flows are stale, and removes them.
package flows

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

// Remover removes stale flows from connection tracking, and connections without an answer to endpoints that are left out.
// One goroutine at a time calls Clean; it is not the loop's.
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
	Log     *slog.Logger
}

// Cleaner removes such flows beside the loop, one cleaning at a time. The kernel walks its whole table for an answer, which
// takes 12 ms and more, and the next change of the rules must not wait for that. Changes that arrive during a cleaning are
// cleaned afterwards.
type Cleaner struct {
	remover   Remover
	tracker   *conntrack.Tracker
	log       *slog.Logger
	nodePorts []netip.Addr     // the addresses on which node ports answer
	applied   bool             // the kernel has the rules of everything that the tracker was told
	done      chan Cleaned     // delivers the end of the cleaning that is under way; nil: there is none
	retry     <-chan time.Time // when to start; nil: when something has to be cleaned
	backoff   time.Duration    // after an error
	share     share
	urgent    share  // of cleanings that only delete connections to endpoints that were left out: their clients wait
	own       *share // of the cleaning that is under way
	cut       tally  // connections without an answer that were deleted
	reset     tally  // open connections that end with their next packet
}

// Cleaned is the end of a cleaning.
type Cleaned struct {
	Results []conntrack.Result
	Err     error
	Took    time.Duration // of a processor; a cleaning that waits for one holds nobody up
}

// New returns a Cleaner that has cleaned nothing.
func New(o Options) *Cleaner {
	tracker := conntrack.NewTracker(o.Former...)
	tracker.Adopt(o.Adopted)
	return &Cleaner{remover: o.Remover, tracker: tracker, log: o.Log}
}

// How long the loop waits before it cleans again after an error, doubling up to the maximum.
const (
	firstRetry = time.Second
	maxRetry   = time.Minute
)

// Set passes a Service's new plan to the tracker; nil: the Service is gone.
func (c *Cleaner) Set(name state.Name, planned *plan.Service) {
	c.applied = false
	c.tracker.Set(name, planned)
}

// RulesApplied notes that the kernel has the rules of everything that was set, and starts a cleaning if one is needed.
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

// start begins a cleaning when there is something to clean. It does not while one is running, while it has to wait, or
// while the old rules are in force, which could still make new flows: the caller calls it again after each of these.
func (c *Cleaner) start() {
	if c.done != nil || c.retry != nil && c.backoff > 0 || !c.applied {
		return
	}
	stale, own := conntrack.Stale{}, &c.urgent
	if now := time.Now(); now.Before(c.share.next) && c.urgent.next.Before(c.share.next) {
		stale = c.tracker.LeftOut()
	}
	if stale.Empty() {
		if c.retry != nil { // cleanings rest
			return
		}
		stale, own = c.tracker.Stale(), &c.share
	}
	if stale.Empty() {
		return
	}
	if rest := time.Until(own.next); rest > 0 {
		c.retry = time.After(rest)
		return
	}
	c.retry, c.own = nil, own
	c.begin(stale)
}

func (c *Cleaner) begin(stale conntrack.Stale) {
	done, nodePorts := make(chan Cleaned, 1), c.nodePorts // with room, so that the goroutine never waits
	c.done = done
	go func() {
		took := threadtime.Measure()
		results, err := c.remover.Clean(stale, nodePorts)
		done <- Cleaned{Results: results, Err: err, Took: took()}
	}()
}

// Done delivers the end of the cleaning that is under way, for Finish. It is nil if there is none.
func (c *Cleaner) Done() <-chan Cleaned { return c.done }

// Finish notes the end of a cleaning, and starts the next one if there is something to clean.
func (c *Cleaner) Finish(end Cleaned) {
	c.done = nil
	c.own.spend(end.Took, time.Now())
	c.note(end.Results)
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
	if c.own == &c.urgent {
		c.tracker.DoneLeftOut()
	} else {
		c.tracker.Done()
	}
	c.start()
}

// note logs how many connections were deleted.
func (c *Cleaner) note(results []conntrack.Result) {
	cut, reset, now := 0, 0, time.Now()
	for i := range results {
		cut += results[i].Unanswered
		reset += results[i].Reset
	}
	if n := c.cut.add(cut, now); n > 0 {
		c.log.Info("connections without an answer were deleted; their clients reach other endpoints", "connections", n)
	}
	if n := c.reset.add(reset, now); n > 0 {
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
// of others. In the long run, cleanings take one part in cleanShare of a core at most, unless one takes longer than a third of
// a second. A few short ones in a row need no rest: when a node dies, its endpoints fail one after the other, and the kernel
// tells their clients "no route to host" after 3 seconds. Those clients have a share of their own, because others who change
// Services of UDP all the time use up the first one.
const (
	cleanShare = 20
	cleanBurst = 100 * time.Millisecond
	maxRest    = 6 * time.Second
)

// share bounds the time that cleanings take.
type share struct {
	debt time.Duration // time of cleanings that is not made up for by rest
	at   time.Time     // when debt was right
	next time.Time     // the next cleaning must not begin earlier
}

// spend delays the next cleaning if cleanings have taken too much time.
func (s *share) spend(took time.Duration, now time.Time) {
	s.debt = max(0, s.debt-now.Sub(s.at)/cleanShare) + took
	s.debt, s.at = min(s.debt, cleanBurst+maxRest/cleanShare), now
	s.next = now.Add(cleanShare * max(0, s.debt-cleanBurst))
}

// sumPeriod is how much time passes at least between two lines about deleted connections.
const sumPeriod = time.Second

// tally counts connections for the log. A tenant can cause them again and again, so the sum of some time is one line.
type tally struct {
	sum int
	at  time.Time // of the last line
}

// add returns how many connections the next line is about; 0: no line is due.
func (t *tally) add(n int, now time.Time) (due int) {
	t.sum += n
	if t.sum == 0 || now.Sub(t.at) < sumPeriod {
		return 0
	}
	due, t.sum, t.at = t.sum, 0, now
	return due
}
