package proxier

import (
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// served is what the loop remembers of a Service: enough to remove what is no longer wanted.
type served struct {
	ports   []portKey
	totals  [2]Totals // by engine
	trigger time.Time // latest trigger time of its slices
}

type portKey struct {
	family nft.Family
	name   string
}

// draft is what a chunk of Services becomes, complete before an engine is touched: taking a frontend from one Service can
// change another one that was planned before.
type draft struct {
	plans    map[state.Name]*plan.Service // nil: the Service is gone
	problems map[state.Name][]state.Problem
	latest   map[state.Name]time.Time // trigger times
	triggers []Trigger
}

// pass brings everything that changed into the kernel.
func (p *Proxier) pass() error {
	p.drainWake()
	changes, synced := p.Store.Pending()
	if !synced {
		return nil
	}
	report := PassReport{Started: time.Now()}
	p.lastPass = report.Started
	queue := changes.Services
	if changes.Environment || !p.hasEnv || p.askAgain {
		queue = p.updateEnvironment(queue)
	}
	queue = p.requeue(queue)
	for chunk := range slices.Chunk(queue, chunkSize) {
		d := p.draft(chunk)
		p.take(&d)
		report.Services += len(d.plans)
		p.triggers = append(p.triggers, d.triggers...)
	}
	p.apply(&report)
	p.finish(changes.Revision, report)
	return report.Err
}

// drainWake takes what was signaled while changes were gathered: this pass covers it, and another one would find nothing.
func (p *Proxier) drainWake() {
	select {
	case <-p.Store.Wake():
	default:
	}
}

// chunkSize bounds how many plans are held at a time: those of 50,000 Services at once take 100 MB. A Service that loses a
// frontend to one in a later chunk is planned again there, and the engine notices that it changes twice.
const chunkSize = 1024

// take hands what is drafted to the engine and remembers it.
func (p *Proxier) take(d *draft) {
	for name, planned := range d.plans {
		if planned == nil {
			p.flows.Set(name, nil)
			p.remove(name)
			continue
		}
		p.problems.set(name, append(d.problems[name], p.serve(name, planned)...))
		p.services[name].trigger = d.latest[name]
		p.flows.Set(name, planned) // which says now which engine serves it
	}
}

// updateEnvironment takes over what changed around the Services and adds those that have to be planned again.
func (p *Proxier) updateEnvironment(queue []state.Name) []state.Name {
	wanted := p.Store.Environment()
	env := newEnvironment(p.Settings, wanted, p.node(wanted.Node))
	env.plan.IPv6 = !p.NoIPv6
	env.globals.IPVS = p.ipvs != nil
	if !p.hasEnv || !env.sameGlobals(&p.env) {
		p.Ruleset.SetGlobals(env.globals)
	}
	if !p.hasEnv || !env.samePlan(&p.env) {
		queue = p.everything(queue)
	} else if !env.sameAddresses(&p.env) {
		p.ipvs.moved()
	}
	p.healthChanged = p.healthChanged || !p.hasEnv || !env.sameGlobals(&p.env)
	p.eligible = wanted.Node == nil || wanted.Node.Eligible
	p.env, p.hasEnv = env, true
	return queue
}

// everything is all Services that there are, and those of the queue that are gone; each once.
func (p *Proxier) everything(queue []state.Name) []state.Name {
	all := p.Store.ServiceNames()
	for _, name := range queue {
		if svc, _ := p.Store.Service(name); svc == nil {
			all = append(all, name)
		}
	}
	return all
}

// node stands in for a Node object that does not exist: a host without a cluster, or one that has not joined yet. Addresses
// that cannot be found out just now stay what they were, and are asked for again.
func (p *Proxier) node(n *state.Node) *state.Node {
	p.askAgain = false
	if n != nil {
		return n
	}
	addresses, err := p.Primary()
	if err != nil {
		p.Log.Warn("cannot find the host's main addresses; node ports on primary addresses stay as they are; asking again",
			"after", checkPeriod, "addresses", p.env.plan.NodeAddresses, "error", err)
		addresses = p.env.plan.NodeAddresses
	}
	p.askAgain = err != nil
	return &state.Node{Name: p.Settings.NodeName, Addresses: addresses, Eligible: true}
}

// draft plans the Services in the queue, and those to which frontends fall that are given up on the way. It comes to an
// end because who gets a frontend depends only on the Services as they are, not on the order in which they are planned.
func (p *Proxier) draft(queue []state.Name) draft {
	d := draft{plans: make(map[state.Name]*plan.Service, len(queue)), problems: map[state.Name][]state.Problem{}, latest: map[state.Name]time.Time{}}
	for len(queue) > 0 {
		name := queue[0]
		queue = append(queue[1:], p.plan(&d, name)...)
	}
	return d
}

func (p *Proxier) plan(d *draft, name state.Name) (replan []state.Name) {
	svc, slices := p.Store.Service(name)
	if svc == nil {
		d.plans[name] = nil
		return p.claims.Release(name)
	}
	planned := p.planner.Plan(svc, slices, &p.env.plan)
	problems, replan := p.claims.Resolve(&planned, svc.Created)
	if _, again := d.plans[name]; !again {
		p.noteTriggers(d, name, slices)
	}
	d.plans[name] = &planned
	d.problems[name] = append(planned.Problems, problems...)
	return replan
}

// noteTriggers collects trigger times that are new. What the proxy found when it started was not late, and is left out.
func (p *Proxier) noteTriggers(d *draft, name state.Name, slices []*state.Slice) {
	var known time.Time
	if old := p.services[name]; old != nil {
		known = old.trigger
	}
	latest := known
	for _, s := range slices {
		if s.Trigger.After(known) && s.Trigger.After(p.started) {
			d.triggers = append(d.triggers, Trigger{s.Family, s.Trigger})
		}
		if s.Trigger.After(latest) {
			latest = s.Trigger
		}
	}
	if !latest.IsZero() {
		d.latest[name] = latest
	}
}

// serve hands the ports to the engine and removes those that the Service no longer has.
func (p *Proxier) serve(name state.Name, planned *plan.Service) []state.Problem {
	var problems []state.Problem
	old, next := p.services[name], &served{}
	for i := range planned.Ports {
		port := &planned.Ports[i]
		key := portKey{family(port.Family), port.Name}
		m := p.balance(name, key, port)
		wanted := p.translator.port(port, &m)
		if port.IPVS = m.ipvs; m.ipvs {
			wanted = besideIPVS(port, &m, &p.env)
		}
		if m.problem != "" {
			problems = append(problems, state.Problem{Kind: "Service", Object: name, Field: "metadata.annotations", Reason: m.problem})
		}
		if err := p.Ruleset.Set(wanted); err != nil {
			reason := err.Error() + "; the port is served as before at the frontends that it keeps, if it was"
			problems = append(problems, state.Problem{Kind: "Service", Object: name, Field: "spec.ports", Reason: reason})
			if !old.has(key) {
				p.forgetBalanced(key)
				continue
			}
		}
		next.ports = append(next.ports, key)
		next.totals[engineOf(port)].count(port)
	}
	if old != nil {
		p.deletePorts(old, next)
		p.count(old, -1)
	}
	p.count(next, 1)
	p.services[name] = next
	p.setHealthCheck(name, planned.HealthCheck)
	return problems
}

func (s *served) has(key portKey) bool { return s != nil && slices.Contains(s.ports, key) }

func (p *Proxier) deletePorts(old, next *served) {
	for _, key := range old.ports {
		if !next.has(key) {
			p.Ruleset.Delete(key.family, key.name)
			p.forgetBalanced(key)
		}
	}
}

func (p *Proxier) remove(name state.Name) {
	p.problems.set(name, nil)
	old := p.services[name]
	if old == nil {
		return
	}
	p.deletePorts(old, nil)
	p.count(old, -1)
	p.setHealthCheck(name, nil)
	delete(p.services, name)
}

func (p *Proxier) setHealthCheck(name state.Name, h *plan.HealthCheck) {
	old, had := p.healthChecks[name]
	switch {
	case h == nil && had:
		delete(p.healthChecks, name)
	case h != nil && (!had || old != *h):
		p.healthChecks[name] = *h
	default:
		return
	}
	p.healthChanged = true
}

// finish lets go of the changes when the kernel has them, and tells everyone how the pass went.
func (p *Proxier) finish(revision uint64, report PassReport) {
	if report.Result.Outcome == nft.Applied && report.Err == nil {
		p.Store.Applied(revision)
		p.failures, p.waiting = 0, time.Time{}
		report.Triggers, p.triggers = p.triggers, nil
	} else {
		p.failures++
	}
	p.lastEnd = time.Now()
	report.Duration = p.lastEnd.Sub(report.Started)
	report.NFT, report.IPVS, report.NodeEligible = p.totals[0], p.totals[1], p.eligible
	if p.healthChanged {
		report.HealthChecks = &HealthChecks{maps.Clone(p.healthChecks), p.env.globals.NodePortAddresses}
		p.healthChanged = false
	}
	p.logPass(&report)
	p.Observer.PassDone(report)
	if report.Err == nil {
		p.cleanFlows()
	}
	if list, changed := p.problems.report(p.Store); changed {
		p.Observer.Problems(list)
	}
}
