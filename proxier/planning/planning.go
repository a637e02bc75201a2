package planning

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/claims"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

// Planning plans Services and settles who gets a frontend that several ask for.
type Planning struct {
	store   *state.Store
	planner plan.Planner
	Claims  *claims.Claims
	budget  budget
	ranges  ranges
	Env     plan.Environment
	health  *endpointhealth.Monitor // nil: nobody looks
	Meter   *threadtime.Meter
	// Since returns how much processor time was used since then: as the meter says, which whoever plans has started.
	Since func(began time.Time) time.Duration
}

// New returns a Planning that has planned nothing.
func New(store *state.Store, s *config.Settings, health *endpointhealth.Monitor, slots plan.Slots) Planning {
	meter := &threadtime.Meter{}
	p := Planning{
		Meter: meter, Since: meter.Since,
		store: store, Claims: claims.New(), budget: budget{limits: s.Budgets, namespaces: map[string]*allotment{}}, health: health,
		ranges: newRanges(s.Budgets.RangeFrontends, s.Budgets.NamespaceRangeFrontends),
	}
	p.planner.Slots, p.planner.MaxEjected = slots, s.MaxEjected
	return p
}

// Claim registers the frontends that Services ask for, before any of them is planned. So none of them is planned with a frontend
// that another one has by precedence, however late that one is planned. Most Services have only a cluster IP of their own, for which
// nobody else asks, and need no plan for it.
func (p *Planning) Claim(names []state.Name) {
	list, users := make([]*state.Service, 0, len(names)), make(map[netip.Addr]int, len(names))
	for _, name := range names {
		if svc, _ := p.store.Service(name); svc != nil {
			list = append(list, svc)
			for _, addrs := range [][]netip.Addr{svc.ClusterIPs, svc.ExternalIPs, svc.LoadBalancerIPs} {
				for _, a := range addrs {
					users[a]++
				}
			}
		}
	}
	for _, svc := range list {
		if len(svc.ExternalIPs)+len(svc.LoadBalancerIPs) > 0 || slices.ContainsFunc(svc.ClusterIPs, func(a netip.Addr) bool { return users[a] > 1 }) ||
			slices.ContainsFunc(svc.Ports, func(port state.ServicePort) bool { return port.NodePort != 0 }) {
			p.planner.Limits = p.budget.limitsOf(svc.Name)
			p.planner.Limits.Ranges = p.ranges.most()
			planned := p.planner.Plan(svc, nil, &p.Env)
			p.Claims.Resolve(&planned, svc.Created)
		}
	}
}

// Draft is what some Services become. It is complete before the dataplane is touched: when one Service takes a frontend
// from another, the other one is planned again.
type Draft struct {
	Plans map[state.Name]Planned
	Order []state.Name // of the plans; each once
	Size  int          // of the plans, at least 1 for each
	// Costs are what the change of a Service cost. What no change of a Service asked for is in none.
	Costs map[state.Name]Cost
	// Cause has, for each Service that gains or loses a frontend by the change of another one, that other one.
	Cause map[state.Name]state.Name
}

// Planned is a Service, what it was planned from, and what of it cannot be honored. The zero value: the Service is gone.
type Planned struct {
	Plan     *plan.Service
	Service  *state.Service
	Slices   []*state.Slice
	Problems []state.Problem
}

// ChunkSize bounds how many plans are held at a time: the plans of 50,000 Services take 100 MB. A Service that loses a
// frontend to one in a later chunk is planned again there, and the engine notices that it changes twice.
const ChunkSize = 1024

// Draft plans the Services in the queue, and those that gain or lose a frontend by it. This ends, because who gets a
// frontend depends on the Services alone, not on the order in which they are planned.
func (p *Planning) Draft(queue []state.Name) Draft {
	d := Draft{
		Plans: make(map[state.Name]Planned, len(queue)), Order: make([]state.Name, 0, len(queue)),
		Costs: map[state.Name]Cost{}, Cause: map[state.Name]state.Name{},
	}
	p.extend(&d, queue, state.Name{})
	return d
}

// Extend adds a Service that has changed to a draft.
func (p *Planning) Extend(d *Draft, changed state.Name) {
	began := time.Now()
	p.extend(d, []state.Name{changed}, changed)
	d.pay(changed, Cost{Planning: p.Since(began)})
}

// Charge hands the plan of a Service on, which takes about as long as to make it. That counts for the Service whose change asked
// for it.
func (p *Planning) Charge(d *Draft, name state.Name, handOn func()) {
	payer := d.payer(name)
	if !d.asked(payer) {
		handOn()
		return
	}
	began := time.Now()
	handOn()
	d.pay(payer, Cost{Planning: p.Since(began)})
}

// pay notes what the change of a Service cost.
func (d *Draft) pay(payer state.Name, cost Cost) {
	cost.add(d.Costs[payer])
	d.Costs[payer] = cost
}

// payer returns the Service whose change had a Service planned.
func (d *Draft) payer(name state.Name) state.Name { return cmp.Or(d.Cause[name], name) }

// asked reports whether the change of a Service extended the draft.
func (d *Draft) asked(name state.Name) bool {
	_, asked := d.Costs[name]
	return asked
}

// extend plans Services because of the change of one; the zero Name: of none.
func (p *Planning) extend(d *Draft, queue []state.Name, cause state.Name) {
	for len(queue) > 0 {
		again := map[state.Name]bool{} // each once: one range can overlap with those of thousands of Services
		for _, name := range queue {
			for _, other := range p.plan(d, name) {
				again[other], d.Cause[other] = true, cause
			}
		}
		if len(again) == 0 {
			return
		}
		queue = slices.SortedFunc(maps.Keys(again), state.Name.Compare)
	}
}

func (p *Planning) plan(d *Draft, name state.Name) (replan []state.Name) {
	if _, again := d.Plans[name]; !again {
		d.Order = append(d.Order, name)
	}
	d.Size++
	svc, list := p.store.Service(name)
	if svc == nil {
		d.Plans[name] = Planned{}
		p.planLater(p.budget.set(name, plan.Usage{}, false))
		return append(p.Claims.Release(name), p.askForRanges(asker{name: name})...)
	}
	p.planner.Limits = p.budget.limitsOf(name)
	p.planner.Limits.Ranges = p.ranges.most()
	p.planner.Health, p.planner.Watched = p.store.Health(name), p.health.Watches(svc)
	planned := p.planner.Plan(svc, list, &p.Env)
	less := p.askForRanges(asker{name, svc.Created.UnixNano(), planned.Used.Ranges})
	if room := p.ranges.limit(name); room.N < planned.Used.Ranges {
		p.planner.Limits.Ranges = room
		planned = p.planner.Plan(svc, list, &p.Env)
	}
	d.Size += planned.Used.Frontends + planned.Used.Elements
	problems, replan := p.Claims.Resolve(&planned, svc.Created)
	p.planLater(p.budget.charge(&planned, p.planner.Limits))
	d.Plans[name] = Planned{&planned, svc, list, slices.Concat(planned.Problems, problems)}
	return append(replan, less...)
}

// askForRanges shares the room for frontends with port ranges anew. It returns the Services that have less now, so that the
// kernel never has more than there is room for. Those that have more are planned later.
func (p *Planning) askForRanges(a asker) (less []state.Name) {
	less, more := p.ranges.ask(a)
	p.planLater(more)
	return less
}

// planLater has Services planned when the turns of their namespace come. There may be many, and they may be large: in the same
// pass, the changes of others would wait for all of them.
func (p *Planning) planLater(names []state.Name) {
	for _, name := range names {
		p.store.PlanAgain(name)
	}
}
