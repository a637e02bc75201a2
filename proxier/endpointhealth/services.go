package endpointhealth

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
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
	watch := m.Watches(svc) || len(choices) > 0
	if !watch && m.ledger.services[name] == nil {
		return problems // nearly every Service, unless all eject or are checked
	}
	is := m.ledger.of(name)
	before := *is
	m.chosen(is, choices, now)
	is.ejects, is.check, is.allDown = m.walker.ejects(svc), m.walker.checkOf(svc), svc.AllDown
	if is.recalled || m.checks.Starves(name) || !before.asksAs(is) {
		m.setQuestions(is, now)
		m.restore(svc, is, list, now)
		m.ledger.touch(name)
	}
	if !slices.Equal(m.Store.Health(name), is.published) {
		m.ledger.touch(name) // the Service was deleted and written again, and the loop has seen only the end
	}
	if !watch {
		m.ledger.drop(name)
	}
	return slices.Concat(problems, is.problems)
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
	m.permit.serve(name, nil)
	m.suspects.Refresh(name, nil, now)
	if is := m.ledger.services[name]; is != nil {
		m.chosen(is, nil, now)
		m.setQuestions(is, now)
	}
	m.ledger.drop(name)
}

const (
	// maxChecks is how many checks there are on a node.
	maxChecks = 20_000
	// looksAtOnce is how many endpoints are looked at in each lookPeriod, and lookAgain when one is looked at that did not answer.
	looksAtOnce = 10
	lookAgain   = 5 * time.Second
)

// newLooks returns the checks that find out which endpoints answer this node at all. A network policy may keep the node away from
// an endpoint that serves its clients: then the node's own questions say nothing. Only Services that eject are looked at.
func newLooks() *checks.Checker {
	return checks.New(checks.Options{
		Jitter: func() float64 { return 0 }, Cost: func(state.CheckKind) time.Duration { return lookPeriod / looksAtOnce },
		Rates: schedule.NewRates(1, 1, lookPeriod), Max: 1 << 20, Once: true, Changed: func(state.Name) {}, Note: func(checks.Note) {},
	})
}

// setQuestions chooses which endpoints of a Service are checked and looked at.
func (m *Monitor) setQuestions(is *watched, now time.Time) {
	looks, targets, excluded := make([]probe.Target, len(is.choices)), make([]probe.Target, len(is.choices)), 0
	for i := range is.choices {
		c := &is.choices[i]
		own := probe.Target{Protocol: c.Protocol, At: c.At}
		if is.ejects && c.Protocol == state.TCP && !m.permit.refuses(c.At) {
			looks[i] = own
		}
		t, checked := checks.TargetOf(is.check, own)
		switch {
		case !checked:
		case m.permit.refuses(t.At):
			excluded++
		default:
			targets[i] = t
		}
	}
	is.looks, _ = m.looks.Set(is.name, &state.HealthCheck{Interval: lookAgain}, looks, now)
	list, left := m.checks.Set(is.name, is.check, targets, now)
	is.checks, is.problems = list, notAsked(is.name, excluded, left)
}

// restore has the endpoints that failed before this process started asked first: by all who may have said that they failed.
func (m *Monitor) restore(svc *state.Service, is *watched, list []*state.Slice, now time.Time) {
	if !is.recalled {
		return
	}
	is.recalled = false
	members := m.walker.members(svc, list, func(netip.Addr) bool { return true })
	for i := range is.published {
		f := &is.published[i]
		if c, found := find(is.choices, f.Protocol, f.At); found && is.checks[c] != nil {
			m.checks.Restore(is.checks[c], f, now)
		}
		if member, found := members[f.At]; found && is.ejects && f.Protocol == state.TCP {
			m.suspects.Restore(f, member, now)
		}
	}
}

// Statuses lists the endpoints that are suspected, failed, failing their checks, or backups, sorted by address. An endpoint
// can be listed more than once. Any goroutine may call it.
func (m *Monitor) Statuses() []Status {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list := suspects(m.ledger, state.Name{})
	for _, is := range m.ledger.services {
		list = append(list, rowsOf(is)...)
	}
	slices.SortStableFunc(list, Status.Compare)
	return list
}

// StatusesOf is Statuses of the endpoints of one Service. Any goroutine may call it.
func (m *Monitor) StatusesOf(name state.Name) []Status {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list := append(suspects(m.ledger, name), rowsOf(m.ledger.services[name])...)
	slices.SortStableFunc(list, Status.Compare)
	return list
}
