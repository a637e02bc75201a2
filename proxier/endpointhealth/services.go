package endpointhealth

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/ledger"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
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
	is, watch := m.ledger.Of(name), m.Watches(svc)
	if is == nil && !watch && len(choices) == 0 {
		return problems // nearly every Service, unless all eject or are checked
	}
	if is == nil {
		is = m.ledger.Add(name)
	}
	before := *is
	m.chosen(is, choices, now)
	is.Ejects, is.Check, is.AllDown = m.walker.ejects(svc), m.walker.checkOf(svc), svc.AllDown
	if is.Recalled || m.checks.Starves(name) || !before.AsksAs(is) {
		is.Problems = slices.Concat(problems, m.setQuestions(is, now))
		m.restore(svc, is, list, now)
		m.ledger.Touch(name)
	}
	if !slices.Equal(m.Store.Health(name), is.Published) {
		m.ledger.Touch(name) // the Service was deleted and written again, and the loop has seen only the end
	}
	if !watch && len(choices) == 0 {
		m.ledger.Drop(name)
	}
	return is.Problems
}

// chosen records what a plan makes of the endpoints of a Service.
func (m *Monitor) chosen(is *ledger.Watched, choices []plan.Choice, now time.Time) {
	if !is.OnBackups.IsZero() {
		m.report.OnBackups--
	}
	if move := is.Chosen(choices, now); len(move.Out)+len(move.Back) > 0 {
		m.report.Moves = append(m.report.Moves, move)
	}
	if !is.OnBackups.IsZero() {
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
	m.permit.Gone(name)
	m.suspects.Refresh(name, nil, now)
	if is := m.ledger.Of(name); is != nil {
		m.chosen(is, nil, now)
		is.Ejects, is.Check = false, nil
		m.setQuestions(is, now)
	}
	m.ledger.Drop(name)
}

// setQuestions chooses which endpoints of a Service are checked and looked at.
func (m *Monitor) setQuestions(is *ledger.Watched, now time.Time) []state.Problem {
	var looks []netip.AddrPort
	var targets []probe.Target
	excluded := 0
	for i := range is.Choices {
		c := &is.Choices[i]
		if is.Ejects && c.Protocol == state.TCP && m.permit.refuses(c.At) == "" {
			looks = append(looks, c.At)
		}
		t, checked := is.Target(c.Protocol, c.At)
		switch {
		case !checked:
		case m.permit.refuses(t.At) != "":
			excluded++
		default:
			targets = append(targets, t)
		}
	}
	m.looks.set(is.Name, slices.Compact(looks))
	left := m.checks.Set(is.Name, is.Check, targets, now)
	is.FindStates(m.checks)
	return notAsked(is.Name, excluded, left)
}

// restore has the endpoints that failed before this process started asked first: by all who may have said that they failed.
func (m *Monitor) restore(svc *state.Service, is *ledger.Watched, list []*state.Slice, now time.Time) {
	if !is.Recalled {
		return
	}
	is.Recalled = false
	failed := map[netip.Addr]bool{}
	for i := range is.Published {
		failed[is.Published[i].At.Addr()] = true
	}
	members := m.walker.members(svc, list, func(a netip.Addr) bool { return failed[a] })
	for i := range is.Published {
		f := &is.Published[i]
		if t, checked := is.Target(f.Protocol, f.At); checked {
			m.checks.Restore(is.Name, is.Check, t, f, now)
		}
		if member, found := members[f.At]; found && is.Ejects && f.Protocol == state.TCP {
			m.suspects.Restore(f, member, now)
		}
	}
}

// Statuses lists the endpoints that are suspected, failed, failing their checks, or backups, sorted by address. An endpoint
// can be listed more than once. Any goroutine may call it.
func (m *Monitor) Statuses() (list []Status) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.statuses(m.suspects.AllRecords(), m.ledger.All()...)
}

// StatusesOf is Statuses of the endpoints of one Service. Any goroutine may call it.
func (m *Monitor) StatusesOf(name state.Name) (list []Status) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.statuses(m.suspects.Records(name), m.ledger.Of(name))
}

func (m *Monitor) statuses(records []suspicion.Record, services ...*ledger.Watched) []Status {
	list := statusesOf(m.ledger, records, m.suspects.Withheld)
	for _, is := range services {
		list = append(list, rowsOf(is)...)
	}
	slices.SortStableFunc(list, Status.Compare)
	return list
}
