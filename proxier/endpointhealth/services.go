package endpointhealth

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Watches reports whether the plan of a Service has to tell what becomes of its endpoints.
func (m *Monitor) Watches(svc *state.Service) bool { return m != nil && m.walker.watches(svc) }

// Serves notes where a Service is about to be served.
func (m *Monitor) Serves(p *plan.Service) {
	if m != nil {
		m.permit.serves(p)
	}
}

// Set notes that the loop handed the plan of a Service to the dataplane. It returns what of the wish is not honored.
func (m *Monitor) Set(svc *state.Service, list []*state.Slice, choices []plan.Choice) []state.Problem {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name, now := svc.Name, time.Now()
	problems := m.walker.ignored(svc)
	if svc.Outliers.Refusals && m.walker.detects() {
		m.kernel.refusals.Store(true)
	}
	if !m.suspects.Idle() {
		m.suspects.Refresh(name, m.walker.members(svc, list, m.suspects.Has), now)
	}
	is, watch := m.services[name], m.Watches(svc)
	if is == nil && !watch && len(choices) == 0 {
		return problems // nearly every Service, unless all eject or are checked
	}
	if is == nil {
		is = &watched{name: name}
		m.services[name] = is
	}
	before := *is
	m.chosen(is, choices, now)
	is.ejects, is.check, is.allDown = m.walker.ejects(svc), m.walker.checkOf(svc), svc.AllDown
	if is.recalled || m.checks.Starves(name) || !before.asksAs(is) {
		is.problems = slices.Concat(problems, m.setQuestions(is, now))
		m.restore(svc, is, list, now)
		m.touch(name)
	}
	if !slices.Equal(m.Store.Health(name), is.published) {
		m.touch(name) // the Service was deleted and written again, and the loop has seen only the end
	}
	if !watch && len(choices) == 0 {
		m.drop(name)
	}
	return is.problems
}

// chosen records what a plan makes of the endpoints of a Service.
func (m *Monitor) chosen(is *watched, choices []plan.Choice, now time.Time) {
	if !is.onBackups.IsZero() {
		m.report.OnBackups--
	}
	if move := is.chosen(choices, now); len(move.Out)+len(move.Back) > 0 {
		m.report.Moves = append(m.report.Moves, move)
	}
	if !is.onBackups.IsZero() {
		m.report.OnBackups++
	}
}

// Remove notes that a Service is gone.
func (m *Monitor) Remove(name state.Name) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.permit.translated.set(name, nil)
	m.suspects.Refresh(name, nil, now)
	if is := m.services[name]; is != nil {
		m.chosen(is, nil, now)
		is.ejects, is.check = false, nil
		m.setQuestions(is, now)
	}
	m.drop(name)
}

// drop forgets a Service that nobody watches.
func (m *Monitor) drop(name state.Name) {
	if is := m.services[name]; is != nil && len(is.published) > 0 {
		m.keeper.unsaved = true
	}
	delete(m.services, name)
	m.touch(name)
}

// setQuestions chooses which endpoints of a Service are checked and looked at.
func (m *Monitor) setQuestions(is *watched, now time.Time) []state.Problem {
	var looks []netip.AddrPort
	var targets []probe.Target
	excluded := 0
	for i := range is.choices {
		c := &is.choices[i]
		if is.ejects && c.Protocol == state.TCP && m.permit.refuses(c.At) == "" {
			looks = append(looks, c.At)
		}
		t, checked := is.target(c.Protocol, c.At)
		switch {
		case !checked:
		case m.permit.refuses(t.At) != "":
			excluded++
		default:
			targets = append(targets, t)
		}
	}
	m.looks.set(is.name, slices.Compact(looks))
	left := m.checks.Set(is.name, is.check, targets, now)
	is.findStates(m.checks)
	return notAsked(is.name, excluded, left)
}

// restore has the endpoints that failed before this process started asked first: by all who may have said that they failed.
func (m *Monitor) restore(svc *state.Service, is *watched, list []*state.Slice, now time.Time) {
	if !is.recalled {
		return
	}
	is.recalled = false
	failed := map[netip.Addr]bool{}
	for i := range is.published {
		failed[is.published[i].At.Addr()] = true
	}
	members := m.walker.members(svc, list, func(a netip.Addr) bool { return failed[a] })
	for i := range is.published {
		f := &is.published[i]
		if t, checked := is.target(f.Protocol, f.At); checked {
			m.checks.Restore(is.name, is.check, t, f, now)
		}
		if member, found := members[f.At]; found && is.ejects && f.Protocol == state.TCP {
			m.suspects.Restore(f, member, now)
		}
	}
}
