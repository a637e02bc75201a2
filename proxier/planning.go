package proxier

import (
	"slices"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/claims"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// planning plans Services and settles who gets a frontend that several ask for.
type planning struct {
	store   *state.Store
	planner plan.Planner
	claims  *claims.Claims
	budget  budget
	env     plan.Environment
	health  *endpointhealth.Monitor // nil: nobody looks
}

func newPlanning(store *state.Store, s *config.Settings, health *endpointhealth.Monitor, slots plan.Slots) planning {
	p := planning{store: store, claims: claims.New(), budget: newBudget(s.Budgets), health: health}
	p.planner.Slots, p.planner.MaxEjected = slots, s.MaxEjected
	return p
}

// draft is what some Services become. It is complete before the dataplane is touched: when one Service takes a frontend
// from another, the other one is planned again.
type draft struct {
	plans    map[state.Name]*plan.Service // nil: the Service is gone
	order    []state.Name                 // of the plans; each once
	size     int                          // of the plans, at least 1 for each
	problems map[state.Name][]state.Problem
	inputs   map[state.Name]input // of the plans that are not nil
}

// input is what a Service was planned from.
type input struct {
	service *state.Service
	slices  []*state.Slice
}

// chunkSize bounds how many plans are held at a time: the plans of 50,000 Services take 100 MB. A Service that loses a
// frontend to one in a later chunk is planned again there, and the engine notices that it changes twice.
const chunkSize = 1024

// draft plans the Services in the queue, and those that gain or lose a frontend by it. This ends, because who gets a
// frontend depends on the Services alone, not on the order in which they are planned.
func (p *planning) draft(queue []state.Name) draft {
	d := draft{
		plans:    make(map[state.Name]*plan.Service, len(queue)),
		order:    make([]state.Name, 0, len(queue)),
		problems: map[state.Name][]state.Problem{},
		inputs:   make(map[state.Name]input, len(queue)),
	}
	p.extend(&d, queue)
	return d
}

// extend adds Services to a draft.
func (p *planning) extend(d *draft, queue []state.Name) {
	for len(queue) > 0 {
		name := queue[0]
		queue = append(queue[1:], p.plan(d, name)...)
	}
}

func (p *planning) plan(d *draft, name state.Name) (replan []state.Name) {
	if _, again := d.plans[name]; !again {
		d.order = append(d.order, name)
	}
	d.size++
	svc, list := p.store.Service(name)
	if svc == nil {
		d.plans[name] = nil
		return append(p.claims.Release(name), p.budget.release(name)...)
	}
	p.planner.Limits = p.budget.limitsOf(name)
	p.planner.Health, p.planner.Watched = p.store.Health(name), p.health.Watches(svc)
	planned := p.planner.Plan(svc, list, &p.env)
	d.size += planned.Used.Frontends + planned.Used.Elements
	problems, replan := p.claims.Resolve(&planned, svc.Created)
	replan = append(replan, p.budget.charge(&planned, p.planner.Limits)...)
	d.plans[name], d.inputs[name] = &planned, input{svc, list}
	d.problems[name] = slices.Concat(planned.Problems, problems)
	return replan
}

// everything lists all Services, and those of the queue that are gone; each once.
func (p *planning) everything(queue []state.Name) []state.Name {
	all := p.store.ServiceNames()
	for _, name := range queue {
		if svc, _ := p.store.Service(name); svc == nil {
			all = append(all, name)
		}
	}
	return all
}
