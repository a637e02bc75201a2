package proxier

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/environment"
	"github.com/verdict-proxy/verdict/proxier/flows"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/planning"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Dataplane is the kernel's side as the loop sees it. Package dataplane documents the contract.
type Dataplane interface {
	SetEnvironment(dataplane.Environment) (replan []state.Name)
	Set(*plan.Service) []state.Problem
	Delete(state.Name)
	Apply() dataplane.Result
	ApplyPiece() dataplane.Result
	Tick() dataplane.Result
	Waiting() *dataplane.Waiting
	Totals() dataplane.AllTotals
	Compare(repair bool) (dataplane.Found, error)
	Repair(dataplane.Interference) dataplane.Result
	RepairMore() dataplane.Result
	Slots(*plan.Port) (weights int, tables map[string]int)
}

// Options configure the loop.
type Options struct {
	Settings  *config.Settings
	Store     *state.Store
	Dataplane Dataplane
	Flows     flows.Remover
	// Empty reports before the first pass whether the kernel has nothing of an earlier process, so that the pass may go there in
	// pieces; nil: nobody knows.
	Empty func() bool
	// Former and Adopted are those of flows.Options.
	Former, Adopted []conntrack.Frontend
	// Primary returns the host's own main addresses. The loop asks for them when there is no Node object.
	Primary func() ([]netip.Addr, error)
	// SlowPath returns why the kernel cannot have the fast path; nil: it can.
	SlowPath func() string
	// BridgesStay is that of environment.Options.
	BridgesStay func() bool
	// APIServers are the addresses of API servers that the configuration names. The endpoints of the Service
	// default/kubernetes are others.
	APIServers []netip.AddrPort
	// Interference delivers what other processes do to the tables; nil when nobody watches. Compare finds some of it
	// then.
	Interference <-chan dataplane.Interference
	// Reconfigured delivers settings that replace those before; nil: they never change. The loop takes over
	// what makes the environment of all Services, and MinSyncPeriod. The rest must be the same as before.
	Reconfigured <-chan *config.Settings
	// NoIPv6 reports that the kernel has no IPv6.
	NoIPv6 bool
	// Accounts have what namespaces cost; nil: the loop makes its own.
	Accounts *planning.Accounts
	// Health finds out which endpoints are good, and tells the store; nil: nobody does.
	Health   *endpointhealth.Monitor
	Observer report.Observer
	// Turned is called whenever the loop has done what came last, at least once a second while it works; nil: nobody asks.
	Turned func()
	Log    *slog.Logger
}

// Proxier is the loop: it decides when a pass begins, and what is done between passes.
type Proxier struct {
	store        *state.Store
	reconfigured <-chan *config.Settings
	observer     report.Observer
	turned       func()
	log          *slog.Logger

	lines   *report.Log
	pace    *pace
	flows   *flows.Cleaner
	passes  passer
	repairs repairer
}

// New returns a loop that has done nothing yet.
func New(o Options) *Proxier {
	if o.Accounts == nil {
		o.Accounts = planning.NewAccounts(o.Store, &o.Settings.Budgets, o.Log)
	}
	quota := report.NewLines(o.Log, o.Settings.Budgets.NamespaceLogLines)
	lines := report.NewLog(o.Log, &quota)
	waiting := o.Dataplane.Waiting()
	cleaner := flows.New(flows.Options{
		Remover: o.Flows, Former: o.Former, Adopted: o.Adopted, Waits: waiting.In, Pays: o.Accounts.Beside, Log: o.Log,
	})
	pace := &pace{minPeriod: o.Settings.MinSyncPeriod}
	return &Proxier{
		store: o.Store, reconfigured: o.Reconfigured, observer: o.Observer, turned: o.Turned, log: o.Log, lines: &lines,
		pace: pace, flows: cleaner,
		passes: passer{
			dataplane: o.Dataplane,
			empty:     o.Empty,
			queue:     queue{store: o.Store, waiting: waiting, held: map[state.Name][]state.Changes{}, replan: map[state.Name]bool{}},
			node: environment.New(environment.Options{
				Settings: o.Settings, Primary: o.Primary, IPv6: !o.NoIPv6, SlowPath: o.SlowPath, BridgesStay: o.BridgesStay,
				Servers: o.APIServers, Retry: checkPeriod, Log: o.Log,
			}),
			planning: planning.New(o.Store, o.Settings, o.Health, o.Dataplane.Slots),
			accounts: o.Accounts,
			triggers: report.NewTriggers(time.Now()),
			checks:   report.NewWantedChecks(),
			flows:    cleaner,
			health:   o.Health,
			problems: report.NewProblemLog(o.Log, &quota),
		},
		repairs: repairer{
			enabled: o.Settings.Repair, dataplane: o.Dataplane, pace: pace, flows: cleaner, observer: o.Observer, lines: &lines, log: o.Log,
			interference: o.Interference, told: report.Lately{},
		},
	}
}

// Run works until the context ends. The kernel keeps its rules then.
func (p *Proxier) Run(ctx context.Context) error {
	check := time.NewTicker(checkPeriod)
	defer check.Stop()
	tick := time.NewTicker(dataplane.TickPeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		if p.turned != nil {
			p.turned()
		}
		if !p.wait(ctx, check.C, tick.C) {
			continue
		}
		if !p.continues() && !p.pace.gather(ctx) {
			return nil
		}
		_ = p.pass() // logged, and tried again
	}
	return nil
}

// wait takes what comes next, and reports whether a pass is wanted.
func (p *Proxier) wait(ctx context.Context, check, tick <-chan time.Time) (wanted bool) {
	select {
	case <-ctx.Done():
		return false
	case <-p.store.Wake():
		p.noteWaiting()
	case <-p.rest():
	case <-p.pace.retry():
	case <-p.pace.piece():
	case s := <-p.reconfigured:
		p.reconfigure(s)
	case i := <-p.repairs.interference:
		p.repairs.repair(i)
		return false
	case <-check:
		return p.check()
	case <-p.repairs.rechecking.due(p.pace.failures):
		p.repairs.recheck()
		return false
	case now := <-tick:
		p.lines.Flush(now)
		p.repairs.repairFound()
		return p.tick()
	case c := <-p.flows.Done():
		p.observer.FlowsCleaned(c.Results)
		p.flows.Finish(c)
		return false
	case <-p.flows.Retry():
		p.flows.TryAgain()
		return false
	}
	return true
}

// reconfigure takes over settings. The next pass derives the environment from them.
func (p *Proxier) reconfigure(s *config.Settings) {
	p.passes.node.Reconfigure(s)
	p.pace.minPeriod = s.MinSyncPeriod
}

// Once brings all changes into the kernel, for callers that only want to see what that would do.
func (p *Proxier) Once() error {
	p.passes.unhurried = true
	for {
		if err := p.pass(); err != nil || !p.store.Rest() && !p.passes.queue.waiting.Some() {
			return err
		}
	}
}

// rest fires when the last pass has left Services for the next one.
func (p *Proxier) rest() <-chan time.Time {
	if !p.continues() {
		return nil
	}
	return time.After(0)
}

// continues reports whether the next pass continues the last one. Nothing has to be gathered for it.
func (p *Proxier) continues() bool { return p.pace.failures == 0 && p.passes.queue.rest() }

// noteWaiting reports that changes wait. Before the first lists are complete, they wait for the sources, and not for
// the loop.
func (p *Proxier) noteWaiting() {
	if p.store.Synced() && p.pace.wait() {
		p.observer.Pending(p.pace.waiting)
	}
}

// check compares the kernel with what the loop wrote. It reports whether a pass has to repair something, or has to ask
// again for addresses of the host.
func (p *Proxier) check() (wanted bool) {
	if !p.pace.begun() || p.pace.failures > 0 {
		return false
	}
	wanted, same := p.repairs.compare()
	if same && p.pace.waiting.IsZero() && !p.continues() {
		p.observer.AsWanted(time.Now())
	}
	return wanted || p.passes.node.Due()
}

// tick has the dataplane continue what needs time, and reports whether a pass is needed.
func (p *Proxier) tick() (wanted bool) {
	if !p.pace.begun() || p.pace.failures > 0 {
		return false
	}
	result, wanted := p.passes.tick()
	p.lines.Failures(result.Failures)
	if result.Err != nil {
		p.log.Error("cannot finish a change of IPVS; trying again with a pass", "error", result.Err)
		p.pace.failed(time.Now())
	}
	return wanted
}

// pass brings changes into the kernel, and reports how that went.
func (p *Proxier) pass() error {
	select {
	case <-p.store.Wake(): // for changes that were gathered: this pass covers them, and another one would find nothing
	default:
	}
	environment, synced := p.passes.queue.environment()
	if !synced {
		return nil
	}
	p.noteWaiting() // also for a pass that repairs the kernel: observers must see that it is stuck
	p.pace.began = time.Now()
	pass := p.passes.pass(environment)
	p.finish(pass)
	return pass.Result.Err
}

// finish tells everyone how a pass went, and does what waited for its end.
func (p *Proxier) finish(pass report.Pass) {
	if problems, changed := p.passes.problems.Report(p.store); changed {
		p.observer.Problems(problems)
	}
	applied := pass.Result.Applied()
	if applied {
		pass.Latencies = p.passes.queue.applied(pass.Result.Ended) // whoever waits for a change finds its problems
	}
	p.pace.leaving = pass.Result.Leaving
	if now := pass.Started.Add(pass.Duration); applied {
		p.pace.applied(now)
	} else {
		p.pace.failed(now)
	}
	p.lines.Pass(&pass, p.pace.failures)
	p.observer.PassDone(pass)
	p.repairs.serversDone(&pass)
	if applied {
		p.flows.RulesApplied(p.passes.node.Shared.NodePortAddresses)
		p.repairs.repairPostponed()
	}
}
