package planning

import (
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// budget bounds what Services and namespaces may become, so that a tenant who writes without measure costs the others
// nothing. A Service past its own limit, and one that finds its namespace full, is served in part: plan.Limits says
// which part. Who has room keeps it. When room comes back, those that were cut are planned again, in the order of their
// names.
type budget struct {
	limits     config.Budgets
	namespaces map[string]*allotment
}

// allotment is what the Services of one namespace have.
type allotment struct {
	used plan.Usage
	each map[string]plan.Usage // by the name of the Service
	cut  []string              // the Services that the limits of the namespace cut, sorted
}

// limitsOf returns what a Service may become now.
func (b *budget) limitsOf(n state.Name) plan.Limits {
	var used, own plan.Usage
	if a := b.namespaces[n.Namespace]; a != nil {
		used, own = a.used, a.each[n.Name]
	}
	l := &b.limits
	return plan.Limits{
		Frontends: smaller(
			plan.Limit{N: l.ServiceFrontends, Flag: "--max-service-frontends"},
			plan.Limit{N: l.NamespaceFrontends - used.Frontends + own.Frontends, Flag: namespaceFrontends}),
		Elements: smaller(
			plan.Limit{N: l.ServiceElements, Flag: "--max-service-elements"},
			plan.Limit{N: l.NamespaceElements - used.Elements + own.Elements, Flag: namespaceElements}),
		Slots: plan.Limit{N: l.NamespaceElements - used.Elements + own.Elements, Flag: namespaceElements},
	}
}

const (
	namespaceFrontends = "--max-namespace-frontends"
	namespaceElements  = "--max-namespace-elements"
)

func smaller(service, namespace plan.Limit) plan.Limit {
	if namespace.N < service.N {
		return namespace
	}
	return service
}

// charge records what a Service has become under some limits. It returns the Services that now may have room.
func (b *budget) charge(p *plan.Service, under plan.Limits) (retry []state.Name) {
	cut := p.Narrow || p.Cut && (under.Frontends.Flag == namespaceFrontends || under.Elements.Flag == namespaceElements)
	return b.set(p.Name, p.Used, cut)
}

// set records what a Service is now; the zero Usage: it is gone. It returns the Services that now may have room.
func (b *budget) set(n state.Name, used plan.Usage, cut bool) (retry []state.Name) {
	a := b.namespaces[n.Namespace]
	if a == nil {
		a = &allotment{each: map[string]plan.Usage{}}
		b.namespaces[n.Namespace] = a
	}
	before := a.each[n.Name]
	a.used.Frontends += used.Frontends - before.Frontends
	a.used.Elements += used.Elements - before.Elements
	a.each[n.Name] = used
	a.note(n.Name, cut)
	if used == (plan.Usage{}) {
		delete(a.each, n.Name)
	}
	if len(a.each)+len(a.cut) == 0 {
		delete(b.namespaces, n.Namespace)
	}
	freed := max(0, before.Frontends-used.Frontends) + max(0, before.Elements-used.Elements)
	return a.retry(n, freed)
}

// note records whether the limits of the namespace cut a Service.
func (a *allotment) note(name string, cut bool) {
	at, was := slices.BinarySearch(a.cut, name)
	switch {
	case cut && !was:
		a.cut = slices.Insert(a.cut, at, strings.Clone(name))
	case was && !cut:
		a.cut = slices.Delete(a.cut, at, at+1)
	}
}

// retry lists Services that may have room after a Service freed some. Each of them takes at least one unit, so that no
// more are planned than was freed.
func (a *allotment) retry(n state.Name, freed int) (retry []state.Name) {
	for _, name := range a.cut {
		if len(retry) == freed {
			break
		}
		if name != n.Name {
			retry = append(retry, state.Name{Namespace: n.Namespace, Name: name})
		}
	}
	return retry
}
