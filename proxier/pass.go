package proxier

import (
	"reflect"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/environment"
	"github.com/verdict-proxy/verdict/proxier/flows"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/planning"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// passer brings changes into the kernel, pass by pass, and reports what became of them.
type passer struct {
	dataplane Dataplane
	empty     func() bool // as in Options
	queue     queue
	node      environment.Environment
	planning  planning.Planning
	accounts  *planning.Accounts
	triggers  report.Triggers
	checks    report.WantedChecks
	flows     *flows.Cleaner
	health    *endpointhealth.Monitor // nil: nobody looks
	problems  report.ProblemLog
	unhurried bool // how much a pass plans does not depend on time, so equal objects give equal transactions
}

// pass plans what changed and hands it to the kernel. What takes too long for one pass stays for the next ones, except what
// changes the environment of all Services. The first pass is such a one: it is complete before it replaces the rules of an
// earlier process. Without such rules, it serves some Services before it has planned all.
func (p *passer) pass(environmentChanged bool) report.Pass {
	pass, first := report.Pass{Started: time.Now()}, !p.node.Known()
	if p.updateEnvironment(environmentChanged) {
		p.setEverything(&pass, first && !p.unhurried && p.empty != nil && p.empty())
		p.apply(&pass)
		// Nobody pays for this pass, but for earlier ones whose Services waited.
		pass.Pauses = p.accounts.Charge(&planning.Draft{}, &dataplane.Result{Ended: pass.Result.Ended}, p.queue.waiting, 0, time.Now())
	} else {
		p.some(&pass)
	}
	p.complete(&pass)
	return pass
}

// some plans some of the Services that changed, hands them to the kernel, and charges their namespaces.
func (p *passer) some(pass *report.Pass) {
	p.planning.Meter.Start()
	d := p.draftSome(pass.Started)
	pass.Services = p.set(d)
	if d.Size >= longSize || p.queue.waiting.Some() { // wall time would count somebody else's transaction
		p.planning.Meter.Lock()
	}
	began := time.Now()
	p.apply(pass)
	took := p.planning.Since(began)
	p.planning.Meter.Stop()
	if !p.unhurried { // otherwise nobody waits
		pass.Pauses = p.accounts.Charge(&d, &pass.Result, p.queue.waiting, took, time.Now())
	}
}

// updateEnvironment takes over what changed around the Services. It reports whether all Services have to be planned.
func (p *passer) updateEnvironment(changed bool) (everything bool) {
	if !changed && !p.node.Due() {
		return false
	}
	planEnv, ports, health, first := p.node.Plan, p.node.Shared.NodePortAddresses, p.node.HealthAddresses, !p.node.Known()
	p.node.Update(p.queue.store.Environment())
	p.planning.Env = p.node.Plan
	shared, claims := p.node.Shared, p.planning.Claims
	if first || !slices.Equal(p.node.HealthAddresses, health) {
		p.checks.Relocate()
	}
	if first || !slices.Equal(shared.NodePortAddresses, ports) {
		p.queue.again(claims.SetNodePortAddresses(shared.NodePortAddresses))
	}
	p.queue.again(claims.SetServers(p.node.APIServers))
	p.queue.again(claims.SetHostAddresses(shared.HostAddresses))
	p.queue.again(p.dataplane.SetEnvironment(shared))
	return first || !reflect.DeepEqual(p.node.Plan, planEnv)
}

// A first pass in pieces plans a few Services at a time. Once it has so many frontends, endpoints and source ranges, it sends
// them: a piece takes the kernel 10 to 15 ms, in which others cannot change nf_tables.
const (
	firstChunk = 32
	firstPiece = 4000
)

// setEverything plans all Services. They are sorted, because their order decides about the numbers of pools: the same objects
// give the same rules each time. In pieces, those of the cluster come first, and whatever comes last is left to apply.
func (p *passer) setEverything(pass *report.Pass, inPieces bool) {
	changed := p.queue.takeAll() // has those that are gone
	all, size, chunk := slices.Compact(sortNames(append(p.queue.store.ServiceNames(), changed...))), 0, planning.ChunkSize
	if inPieces {
		p.planning.Claim(all)
		others := slices.DeleteFunc(slices.Clone(all), state.Name.OfCluster)
		all = append(slices.DeleteFunc(all, func(n state.Name) bool { return !n.OfCluster() }), others...)
		chunk = firstChunk
	}
	for names := range slices.Chunk(all, chunk) {
		d := p.planning.Draft(names)
		pass.Services += p.set(d)
		if size += d.Size; inPieces && size >= firstPiece {
			r := p.dataplane.ApplyPiece()
			r.Changed = nil // nobody pays for this pass
			pass.Result.Add(r)
			p.set(p.planning.Draft(r.Replan))
			size, inPieces = 0, r.Err == nil // otherwise the rest comes at once
		}
	}
}

// A pass plans until it has used one of these up. To hand the plans to the engines and the kernel takes longer than to
// make them. A change that arrives meanwhile waits for that, and for its turn in the next pass.
const (
	planPeriod = 3 * time.Millisecond
	planSize   = 300 // frontends, endpoints and source ranges
)

// longSize is how large a draft is that takes long to hand on and to apply: more than threadtime.Brief.
const longSize = 1000

// draftSome plans some Services, at least one.
func (p *passer) draftSome(began time.Time) planning.Draft {
	d := p.planning.Draft(p.queue.takeAgain())
	fresh := p.queue.left && p.queue.store.Fresh()
	for p.queue.left = true; d.Size == 0 || d.Size < planSize && (p.unhurried || time.Since(began) < planPeriod); {
		if fresh && d.Size > 0 && !p.queue.store.Fresh() {
			break // these need not wait for what the last pass has left
		}
		names := p.queue.take(1)
		if len(names) == 0 {
			p.queue.left = false
			break
		}
		p.planning.Extend(&d, names[0])
	}
	return d
}

// set hands plans to the dataplane. It returns how many there were.
func (p *passer) set(d planning.Draft) int {
	for _, name := range d.Order {
		p.planning.Charge(&d, name, func() { p.setService(name, d.Plans[name]) })
	}
	return len(d.Order)
}

func (p *passer) setService(name state.Name, of planning.Planned) {
	planned := of.Plan
	if planned == nil {
		p.remove(name)
		return
	}
	p.health.Serves(planned)
	unserved := p.dataplane.Set(planned)
	p.problems.Set(name, of.Problems, unserved, p.health.Set(of.Service, of.Slices, planned.Choices))
	p.checks.Set(name, planned.HealthCheck)
	p.triggers.Note(name, of.Slices)
	p.flows.Set(name, planned, of.Slices...) // after Set, which says which engine serves a port
	if changed := p.node.Weigh(name, planned.PodCIDRs); of.Service.Outliers.Refusals && p.node.NoticeRefusals() || changed {
		p.queue.again(p.dataplane.SetEnvironment(p.node.Shared))
	}
}

func (p *passer) remove(name state.Name) {
	p.dataplane.Delete(name)
	if p.node.Weigh(name, plan.Evidence{}) {
		p.queue.again(p.dataplane.SetEnvironment(p.node.Shared))
	}
	p.problems.Set(name)
	p.checks.Set(name, nil)
	p.triggers.Forget(name)
	p.flows.Set(name, nil)
	p.health.Remove(name)
}

// apply hands everything to the kernel. Services whose ports change their engine are planned again on the way.
func (p *passer) apply(pass *report.Pass) {
	pass.Planning = time.Since(pass.Started) - pass.Result.Encode - pass.Result.Kernel
	for {
		pass.Result.Add(p.dataplane.Apply())
		replan := pass.Result.Replan
		if pass.Result.Err != nil || len(replan) == 0 {
			p.queue.again(replan)
			return
		}
		slices.SortFunc(replan, state.Name.Compare)
		p.set(p.planning.Draft(replan))
	}
}

// complete completes the report.
func (p *passer) complete(pass *report.Pass) {
	if pass.Result.Applied() {
		pass.Triggers = p.triggers.Take(p.queue.waiting, pass.Result.Ended)
	}
	pass.Duration = time.Since(pass.Started)
	pass.Totals, pass.NodeEligible, pass.Leaving = p.dataplane.Totals(), p.node.Eligible, p.node.Leaving
	pass.HealthChecks = p.checks.Take(p.node.HealthAddresses)
}

// tick has the dataplane continue what needs time. It returns what the dataplane did, and whether a pass is needed.
func (p *passer) tick() (result dataplane.Result, wanted bool) {
	result = p.dataplane.Tick()
	p.queue.again(result.Replan)
	return result, len(p.queue.replan) > 0
}
