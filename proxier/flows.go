package proxier

import (
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// Flows is what the loop needs of connection tracking. Clean is called by one goroutine at a time, not that of the loop.
type Flows interface {
	Clean(stale conntrack.Stale, nodePortAddresses []netip.Addr) ([]conntrack.Result, error)
}

// cleaned is the end of a cleaning.
type cleaned struct {
	results []conntrack.Result
	err     error
}

// How long the loop waits before it cleans again after an error, doubling up to the maximum.
const (
	firstFlowRetry = time.Second
	maxFlowRetry   = time.Minute
)

// cleanFlows has UDP flows removed that went stale. It comes after the rules: before, new flows could still be made by
// the old ones. It does not wait: the kernel walks its whole table for an answer (12 ms and more), and the next change
// of the rules must not stand behind that. What changes meanwhile is cleaned when this cleaning has ended.
func (p *Proxier) cleanFlows() {
	if p.cleaning {
		return
	}
	stale := p.flows.Stale()
	if stale.Empty() {
		p.flows.Done()
		return
	}
	p.cleaning = true
	addresses := p.env.globals.NodePortAddresses
	go func() {
		results, err := p.Flows.Clean(stale, addresses)
		p.cleaned <- cleaned{results, err}
	}()
}

// flowsCleaned takes note of the end of a cleaning and starts the next one if there is something to clean. It returns
// when to try again after an error.
func (p *Proxier) flowsCleaned(c cleaned) (again <-chan time.Time) {
	p.cleaning = false
	p.Observer.FlowsCleaned(c.results)
	if c.err != nil {
		p.flowRetry = min(max(firstFlowRetry, 2*p.flowRetry), maxFlowRetry)
		p.Log.Error("stale UDP flows not removed; trying again", "after", p.flowRetry, "error", c.err)
		return time.After(p.flowRetry)
	}
	p.flowRetry = 0
	p.flows.Done()
	p.cleanFlows()
	return nil
}
