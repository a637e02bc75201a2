package proxier

import (
	"context"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Run works until the context ends. The kernel keeps its rules then.
func (p *Proxier) Run(ctx context.Context) error {
	check := time.NewTicker(checkPeriod)
	defer check.Stop()
	tick := time.NewTicker(dataplane.TickPeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
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
	case s := <-p.reconfigured:
		p.reconfigure(s)
	case i := <-p.interference:
		return p.repair(i)
	case <-check:
		return p.check()
	case <-p.looking.due(p.pace.failures):
		p.look()
		return false
	case now := <-tick:
		p.errors.passes.write(now)
		p.errors.foreign.write(now)
		p.repairFound()
		return p.tick()
	case c := <-p.flows.done:
		p.observer.FlowsCleaned(c.results)
		p.flows.finish(c)
		return false
	case <-p.flows.retry:
		p.flows.tryAgain()
		return false
	}
	return true
}

// reconfigure takes over settings. The next pass derives the environment from them.
func (p *Proxier) reconfigure(s *config.Settings) {
	p.node.settings, p.pace.minPeriod, p.node.askAgain = s, s.MinSyncPeriod, true
}

// Once brings all changes into the kernel, for callers that only want to see what that would do.
func (p *Proxier) Once() error {
	for {
		if err := p.pass(); err != nil || !p.store.Rest() {
			return err
		}
	}
}

// rest fires when the latest pass has left Services for the next one.
func (p *Proxier) rest() <-chan time.Time {
	if !p.continues() {
		return nil
	}
	return time.After(0)
}

// continues reports whether the next pass continues the latest one. Nothing has to be gathered for it.
func (p *Proxier) continues() bool { return p.left && p.pace.failures == 0 && p.store.Rest() }

// noteWaiting reports that changes wait. Before the first lists are complete, they wait for the sources, and not for
// the loop.
func (p *Proxier) noteWaiting() {
	if p.store.Synced() && p.pace.wait() {
		p.observer.Pending(p.pace.waiting)
	}
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

// pass brings changes into the kernel. What takes too long for one pass stays for the next ones, except what changes
// the environment of all Services. The first pass is such a one: it is complete before it replaces the rules of an
// earlier process.
func (p *Proxier) pass() error {
	p.drainWake()
	changes, synced := p.store.Take(0)
	if !synced {
		return nil
	}
	p.noteWaiting() // also for a pass that repairs the kernel: observers must see that it is stuck
	report := PassReport{Started: time.Now()}
	p.pace.began = report.Started
	if changes.Environment {
		p.taken = append(p.taken, changes)
	}
	var planned map[state.Name]int
	everything := p.updateEnvironment(changes.Environment)
	if everything {
		report.Services = p.setEverything()
	} else {
		d := p.draftSome(report.Started)
		planned, report.Services = p.pauses.planned(&d), p.set(d)
	}
	report.Planning = time.Since(report.Started)
	p.apply(&report)
	if !everything { // otherwise it was not the tenants' doing
		p.pause(&report, planned)
	}
	p.finish(report)
	return report.Result.Err
}

// drainWake takes what was signaled while changes were gathered. This pass covers it; another one would find nothing.
func (p *Proxier) drainWake() {
	select {
	case <-p.store.Wake():
	default:
	}
}

// take returns the next Services to plan, and remembers to confirm them when the kernel has them. The environment is
// confirmed by what the pass took first.
func (p *Proxier) take(n int) []state.Name {
	changes, _ := p.store.Take(n)
	changes.Environment = false
	if len(changes.Services) > 0 {
		p.taken = append(p.taken, changes)
	}
	return changes.Services
}

// takeReplan returns the Services that the dataplane wants planned again, sorted.
func (p *Proxier) takeReplan() []state.Name {
	if len(p.replan) == 0 {
		return nil
	}
	names := sortNames(slices.Collect(maps.Keys(p.replan)))
	p.replan = map[state.Name]bool{}
	return names
}

// updateEnvironment takes over what changed around the Services. It reports whether all Services have to be planned.
func (p *Proxier) updateEnvironment(changed bool) (everything bool) {
	if !changed && p.node.known && !p.node.askAgain {
		return false
	}
	planEnv, shared := p.node.planEnv, p.node.shared
	first := !p.node.known
	p.node.update(p.store.Environment())
	p.planning.env = p.node.planEnv
	if first || !slices.Equal(p.node.shared.NodePortAddresses, shared.NodePortAddresses) {
		p.checks.changed = true // its servers listen on the addresses of node ports
		for _, name := range p.planning.claims.SetNodePortAddresses(p.node.shared.NodePortAddresses) {
			p.replan[name] = true
		}
	}
	for _, name := range p.planning.claims.SetServers(p.node.apiServers) {
		p.replan[name] = true
	}
	for _, name := range p.planning.claims.SetHostAddresses(p.node.shared.HostAddresses) {
		p.replan[name] = true
	}
	for _, name := range p.dataplane.SetEnvironment(p.node.shared) {
		p.replan[name] = true
	}
	return first || !reflect.DeepEqual(p.node.planEnv, planEnv)
}

// setEverything plans all Services, and returns how many there were. They are sorted, because their order decides about
// the numbers of pools: the same objects give the same rules each time.
func (p *Proxier) setEverything() (services int) {
	queue := sortNames(p.planning.everything(p.take(math.MaxInt)))
	p.replan, p.left = map[state.Name]bool{}, false
	for chunk := range slices.Chunk(queue, chunkSize) {
		services += p.set(p.planning.draft(chunk))
	}
	return services
}

// A pass plans until it has used one of these up. To hand the plans to the engines and the kernel takes longer than to
// make them. A change that arrives meanwhile waits for that, and for its turn in the next pass.
const (
	planPeriod = 3 * time.Millisecond
	planSize   = 300 // frontends, endpoints and source ranges
)

// draftSome plans some Services, at least one.
func (p *Proxier) draftSome(began time.Time) draft {
	d := p.planning.draft(p.takeReplan())
	fresh := p.left && p.store.Fresh()
	for p.left = true; d.size == 0 || d.size < planSize && time.Since(began) < planPeriod; {
		if fresh && d.size > 0 && !p.store.Fresh() {
			break // these need not wait for what the latest pass has left
		}
		names := p.take(1)
		if len(names) == 0 {
			p.left = false
			break
		}
		p.planning.extend(&d, names)
	}
	return d
}

// sortNames sorts names. To sort them by namespace is faster than to compare whole names.
func sortNames(names []state.Name) []state.Name {
	each := map[string][]string{}
	for _, n := range names {
		each[n.Namespace] = append(each[n.Namespace], n.Name)
	}
	names = names[:0]
	for _, namespace := range slices.Sorted(maps.Keys(each)) {
		slices.Sort(each[namespace])
		for _, name := range each[namespace] {
			names = append(names, state.Name{Namespace: namespace, Name: name})
		}
	}
	return names
}

// set hands plans to the dataplane. It returns how many there were.
func (p *Proxier) set(d draft) int {
	for _, name := range d.order {
		planned := d.plans[name]
		if planned == nil {
			p.remove(name)
			continue
		}
		p.health.Serves(planned)
		unserved := p.dataplane.Set(planned)
		in := d.inputs[name]
		p.problems.set(name, d.problems[name], unserved, p.health.Set(in.service, in.slices, planned.Choices))
		p.checks.set(name, planned.HealthCheck)
		p.triggers.note(name, in.slices)
		p.flows.set(name, planned) // after Set, which says which engine serves a port
	}
	p.noteRefusals()
	return len(d.order)
}

// noteRefusals has the program notice refusals when the first Service asks for them.
func (p *Proxier) noteRefusals() {
	if p.node.refusing || !p.health.Refusals() {
		return
	}
	p.node.refusing, p.node.shared.Refusing = true, true
	for _, name := range p.dataplane.SetEnvironment(p.node.shared) {
		p.replan[name] = true
	}
}

func (p *Proxier) remove(name state.Name) {
	p.dataplane.Delete(name)
	p.problems.set(name)
	p.checks.set(name, nil)
	p.triggers.forget(name)
	p.flows.set(name, nil)
	p.health.Remove(name)
}

// apply hands everything to the kernel. Services whose ports change their engine are planned again on the way.
func (p *Proxier) apply(report *PassReport) {
	for {
		report.Result.Add(p.dataplane.Apply())
		replan := report.Result.Replan
		if report.Result.Err != nil || len(replan) == 0 {
			return
		}
		slices.SortFunc(replan, state.Name.Compare)
		p.set(p.planning.draft(replan))
	}
}

// finish lets go of the changes when the kernel has them, and tells everyone how the pass went.
func (p *Proxier) finish(report PassReport) {
	now := time.Now()
	applied := report.Result.Applied()
	if applied {
		for _, changes := range p.taken {
			p.store.Applied(changes)
		}
		p.taken = nil
		p.pace.applied(now)
		report.Triggers = p.triggers.take()
	} else {
		p.pace.failed(now)
	}
	report.Duration = now.Sub(report.Started)
	report.Totals, report.NodeEligible = p.dataplane.Totals(), p.node.eligible
	report.HealthChecks = p.checks.take(p.node.shared.NodePortAddresses)
	p.errors.report(&report, p.pace.failures)
	p.observer.PassDone(report)
	p.serversDone(&report)
	if applied {
		p.flows.rulesApplied(p.node.shared.NodePortAddresses)
	}
	if report, changed := p.problems.report(p.store); changed {
		p.observer.Problems(report)
	}
	if applied {
		p.repairNow()
	}
}
