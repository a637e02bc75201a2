package proxier

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// Flows removes stale flows from connection tracking. One goroutine at a time calls Clean; it is not the loop's.
type Flows interface {
	Clean(stale conntrack.Stale, nodePorts []netip.Addr) ([]conntrack.Result, error)
}

// flowCleaner has UDP flows removed that went stale, beside the loop: the kernel walks its whole table for an answer (12 ms
// and more), and the next change of the rules must not wait for that. Changes that come meanwhile are cleaned afterwards.
type flowCleaner struct {
	flows   Flows
	tracker *conntrack.Tracker
	log     *slog.Logger
	running bool
	done    chan cleaned // has room for one result, so that the goroutine never waits
	backoff time.Duration
}

// cleaned is the end of a cleaning.
type cleaned struct {
	results   []conntrack.Result
	err       error
	nodePorts []netip.Addr
}

func newFlowCleaner(flows Flows, former []conntrack.Frontend, log *slog.Logger) flowCleaner {
	return flowCleaner{flows: flows, tracker: conntrack.NewTracker(former...), log: log, done: make(chan cleaned, 1)}
}

// How long the loop waits before it cleans again after an error, doubling up to the maximum.
const (
	firstFlowRetry = time.Second
	maxFlowRetry   = time.Minute
)

// start begins a cleaning when there is something to clean and none is running. The caller calls it when the kernel has the
// rules: before, the old rules could still make new flows.
func (c *flowCleaner) start(nodePorts []netip.Addr) {
	if c.running {
		return
	}
	stale := c.tracker.Stale()
	if stale.Empty() {
		c.tracker.Done()
		return
	}
	c.running = true
	go func() {
		results, err := c.flows.Clean(stale, nodePorts)
		c.done <- cleaned{results: results, err: err, nodePorts: nodePorts}
	}()
}

// finish takes note of the end of a cleaning and starts the next one if there is something to clean. After an error it
// returns when to try again.
func (c *flowCleaner) finish(end cleaned) (again <-chan time.Time) {
	c.running = false
	if end.err != nil {
		c.backoff = min(max(firstFlowRetry, 2*c.backoff), maxFlowRetry)
		c.log.Error("stale UDP flows not removed; trying again", "after", c.backoff, "error", end.err)
		return time.After(c.backoff)
	}
	c.backoff = 0
	c.tracker.Done()
	c.start(end.nodePorts)
	return nil
}
