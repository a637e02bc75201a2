package proxier

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Dataplane is the kernel's side as the loop sees it. Package dataplane documents the contract.
type Dataplane interface {
	SetEnvironment(dataplane.Environment) (replan []state.Name)
	Set(*plan.Service) []state.Problem
	Delete(state.Name)
	Apply() dataplane.Result
	Check() (damaged []string, err error)
	Tick() dataplane.Result
	Totals() dataplane.TotalsByEngine
}

// Options configure the loop.
type Options struct {
	Settings  *config.Settings
	Store     *state.Store
	Dataplane Dataplane
	Flows     Flows
	// Former are frontends of an earlier process that have UDP flows.
	Former []conntrack.Frontend
	// Primary returns the host's own main addresses. The loop asks for them when there is no Node object.
	Primary func() ([]netip.Addr, error)
	// NoIPv6 reports that the kernel has no IPv6.
	NoIPv6   bool
	Observer Observer
	Log      *slog.Logger
}

// Proxier is the loop.
type Proxier struct {
	settings  *config.Settings
	store     *state.Store
	dataplane Dataplane
	observer  Observer
	log       *slog.Logger

	node     nodeEnvironment
	planning planning
	replan   map[state.Name]bool // Services that the dataplane wants planned again with the next pass
	pace     pace
	triggers triggers
	checks   healthChecks
	flows    flowCleaner
	problems problemLog
	errors   errorLog
}

// New returns a loop that has done nothing yet.
func New(o Options) *Proxier {
	return &Proxier{
		settings: o.Settings, store: o.Store, dataplane: o.Dataplane, observer: o.Observer, log: o.Log,
		node:     nodeEnvironment{settings: o.Settings, primary: o.Primary, ipv6: !o.NoIPv6, log: o.Log},
		planning: newPlanning(o.Store),
		replan:   map[state.Name]bool{},
		pace:     pace{minPeriod: o.Settings.MinSyncPeriod},
		triggers: newTriggers(time.Now()),
		checks:   newHealthChecks(),
		flows:    newFlowCleaner(o.Flows, o.Former, o.Log),
		problems: newProblemLog(o.Log),
		errors:   newErrorLog(o.Log),
	}
}

// checkPeriod is how often the loop compares the kernel with what it wrote.
const checkPeriod = 5 * time.Second

// Run works until the context ends. The kernel keeps its rules then.
func (p *Proxier) Run(ctx context.Context) error {
	check := time.NewTicker(checkPeriod)
	defer check.Stop()
	tick := time.NewTicker(dataplane.TickPeriod)
	defer tick.Stop()
	var cleanAgain <-chan time.Time
	for {
		wanted := true // a pass
		select {
		case <-ctx.Done():
			return nil
		case <-p.store.Wake():
			p.noteWaiting()
		case <-p.pace.retry():
		case <-check.C:
			wanted = p.check()
		case <-tick.C:
			wanted = p.tick()
		case c := <-p.flows.done:
			p.observer.FlowsCleaned(c.results)
			cleanAgain, wanted = p.flows.finish(c), false
		case <-cleanAgain:
			p.flows.start(p.node.shared.NodePortAddresses)
			cleanAgain, wanted = nil, false
		}
		if wanted {
			if !p.pace.gather(ctx) {
				return nil
			}
			_ = p.pass() // logged, and tried again
		}
	}
}

// Once does a single pass, for callers that only want to see what it would do.
func (p *Proxier) Once() error { return p.pass() }

func (p *Proxier) noteWaiting() {
	if p.pace.wait() {
		p.observer.Pending(p.pace.waiting)
	}
}

// check reports whether a pass has to repair what others changed ("flush ruleset" of the host's firewall, for example), or
// to ask again for addresses of the host.
func (p *Proxier) check() (wanted bool) {
	if !p.node.known || p.pace.failures > 0 {
		return false
	}
	damaged, err := p.dataplane.Check()
	for _, what := range damaged {
		p.log.Warn("someone else changed what Verdict wrote into the kernel; writing it again", "object", what)
	}
	if err != nil {
		p.log.Warn("cannot compare the kernel with what Verdict wrote; trying again", "every", checkPeriod, "error", err)
	}
	return len(damaged) > 0 || p.node.askAgain
}

// tick has the dataplane continue what needs time, and reports whether a pass is needed.
func (p *Proxier) tick() (wanted bool) {
	if !p.node.known || p.pace.failures > 0 {
		return false
	}
	result := p.dataplane.Tick()
	for _, name := range result.Replan {
		p.replan[name] = true
	}
	p.errors.ipvs(result.Failures)
	if result.Err != nil {
		p.log.Error("cannot finish a change of IPVS; trying again with a pass", "error", result.Err)
		p.pace.failed(time.Now())
	}
	return len(p.replan) > 0
}
