package proxier

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Flows removes stale flows from connection tracking, and connections without an answer to endpoints that are left out. One goroutine at a time calls Clean; it is not the loop's.
type Flows interface {
	Clean(stale conntrack.Stale, nodePorts []netip.Addr) ([]conntrack.Result, error)
}

// flowCleaner removes such flows beside the loop, for UDP and for endpoints that are not good alike: one cleaning at a time. The kernel walks its whole table for an answer, which takes 12
// ms and more, and the next change of the rules must not wait for that. Changes that come meanwhile are cleaned
// afterwards.
type flowCleaner struct {
	flows     Flows
	tracker   *conntrack.Tracker
	log       *slog.Logger
	nodePorts []netip.Addr     // the addresses on which node ports answer
	applied   bool             // the kernel has the rules of everything that the tracker was told
	running   bool             // a cleaning is under way
	done      chan cleaned     // has room for one result, so that the goroutine never waits
	retry     <-chan time.Time // when to start; nil: when something has to be cleaned
	backoff   time.Duration    // after an error
	rested    time.Time        // the next cleaning must not begin earlier
	debt      time.Duration    // time of cleanings that is not made up for by rest
	debtAt    time.Time        // when debt was right
	cut       int              // connections without an answer that were deleted, since the latest line about them
	cutAt     time.Time
	reset     int // open connections that end with their next packet, as above
	resetAt   time.Time
}

// cleaned is the end of a cleaning.
type cleaned struct {
	results []conntrack.Result
	err     error
	took    time.Duration
}

func newFlowCleaner(flows Flows, former, adopted []conntrack.Frontend, log *slog.Logger) flowCleaner {
	tracker := conntrack.NewTracker(former...)
	tracker.Adopt(adopted)
	return flowCleaner{flows: flows, tracker: tracker, log: log, done: make(chan cleaned, 1)}
}

// How long the loop waits before it cleans again after an error, doubling up to the maximum.
const (
	firstFlowRetry = time.Second
	maxFlowRetry   = time.Minute
)

// A cleaning takes long when many packets with forged sources have filled the kernel's table, and it holds up the packets
// of others. In the long run, cleanings take one part in cleanShare of a core at most, unless one takes longer than a third of
// a second. A few short ones in a row need no rest: when a node dies, its endpoints fail one after the other, and the kernel
// tells their clients "no route to host" after 3 seconds.
const (
	cleanShare = 20
	cleanBurst = 100 * time.Millisecond
	maxRest    = 6 * time.Second
)

// set tells the tracker of a Service's new plan; nil: the Service is gone.
func (c *flowCleaner) set(name state.Name, planned *plan.Service) {
	c.applied = false
	c.tracker.Set(name, planned)
}

// rulesApplied notes that the kernel has the rules of everything that was set, and starts a cleaning if one is needed.
func (c *flowCleaner) rulesApplied(nodePorts []netip.Addr) {
	c.applied, c.nodePorts = true, nodePorts
	c.tracker.SetNodePortAddresses(nodePorts)
	c.start()
}

// rulesRepaired notes that another process had changed the rules. The next cleaning looks at all flows. It starts at
// once if the kernel has the right rules again; otherwise the next pass starts it.
func (c *flowCleaner) rulesRepaired(done bool) {
	c.tracker.Doubt()
	c.applied = c.applied && done
	c.start()
}

// start begins a cleaning when there is something to clean. It does not while one is running, while it has to wait, or
// while the old rules are in force, which could still make new flows: the caller calls it again after each of these.
func (c *flowCleaner) start() {
	if c.running || c.retry != nil || !c.applied {
		return
	}
	stale := c.tracker.Stale()
	if stale.Empty() {
		return
	}
	if rest := time.Until(c.rested); rest > 0 {
		c.retry = time.After(rest)
		return
	}
	c.running = true
	nodePorts := c.nodePorts
	go func() {
		began := time.Now()
		results, err := c.flows.Clean(stale, nodePorts)
		c.done <- cleaned{results: results, err: err, took: time.Since(began)}
	}()
}

// finish notes the end of a cleaning, and starts the next one if there is something to clean.
func (c *flowCleaner) finish(end cleaned) {
	c.running = false
	c.rest(end.took)
	c.noteCut(end.results)
	if end.err != nil {
		c.failed(end.err)
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
	c.tracker.Done()
	c.start()
}

// rest delays the next cleaning if cleanings have taken too much time.
func (c *flowCleaner) rest(took time.Duration) {
	now := time.Now()
	c.debt = max(0, c.debt-now.Sub(c.debtAt)/cleanShare) + took
	c.debt, c.debtAt = min(c.debt, cleanBurst+maxRest/cleanShare), now
	c.rested = now.Add(cleanShare * max(0, c.debt-cleanBurst))
}

// noteCut logs how many connections without an answer were deleted. A tenant can cause it again and again, so the sum of
// some time is one line.
func (c *flowCleaner) noteCut(results []conntrack.Result) {
	for i := range results {
		c.cut += results[i].Unanswered
		c.reset += results[i].Reset
	}
	if now := time.Now(); c.cut > 0 && now.Sub(c.cutAt) >= passLogPeriod {
		c.log.Info("connections without an answer were deleted; their clients reach other endpoints", "connections", c.cut)
		c.cut, c.cutAt = 0, now
	}
	if now := time.Now(); c.reset > 0 && now.Sub(c.resetAt) >= passLogPeriod {
		c.log.Info("open connections to endpoints that are gone or failed end, as on-removal asks", "connections", c.reset)
		c.reset, c.resetAt = 0, now
	}
}

// failed makes the next cleaning wait. It logs only the first of several failures in a row.
func (c *flowCleaner) failed(err error) {
	if c.backoff == 0 {
		c.log.Error("cannot remove stale flows; clients that keep sending still reach endpoints that are gone or do not "+
			"answer, and Services that were deleted; trying again until it works", "reason", conntrack.Reason(err), "error", err)
	}
	c.backoff = min(max(firstFlowRetry, 2*c.backoff), maxFlowRetry)
	c.retry = time.After(c.backoff)
}

// tryAgain starts a cleaning after the wait.
func (c *flowCleaner) tryAgain() {
	c.retry = nil
	c.start()
}
