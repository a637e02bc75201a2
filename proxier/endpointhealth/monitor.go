package endpointhealth

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options configure a Monitor. The functions are called from its goroutines, and may block.
type Options struct {
	Settings *config.Settings
	Store    *state.Store
	// Default is the check of Services that ask for none; nil: no check.
	Default *state.HealthCheck
	// APIServers are never asked, like those that the store knows.
	APIServers []netip.AddrPort
	// Suspicions reads what the kernel noticed lately, with refusing endpoints or without. It is not called if the
	// settings turn the detection off.
	Suspicions func(refusing bool) ([]Suspicion, error)
	// Ask asks an endpoint, and Cost says how much processor time that takes. Used is how much this process used; nil: unknown.
	Ask    func(context.Context, *probe.Question) probe.Answer
	Cost   func(state.CheckKind) time.Duration
	Used   func() time.Duration
	Memory Memory // nil: failures are forgotten when the process ends
	// Report is called with what happened. It must not block.
	Report func(Report)
	// MayWrite reports whether a line about a namespace may be logged.
	MayWrite func(namespace string, now time.Time) bool
	Log      *slog.Logger
}

// Monitor finds out which endpoints are good, and writes it into the store. It runs beside the loop, because it waits for
// answers of the kernel and of endpoints. It decides nothing about pools, which is the work of package plan.
//
// While nothing is wrong, it reads two empty sets of the kernel five times a second, and remembers nothing of Services
// that only observe.
type Monitor struct {
	Options
	permit   *permit
	asker    *asker
	kernel   *kernel
	walker   *walker
	reporter *reporter

	mu       sync.Mutex // guards what follows
	suspects *suspicion.Detector
	checks   *checks.Checker
	looks    *checks.Checker // first ones at endpoints
	ledger   *ledger
	report   Report
}

// New returns a Monitor. It writes the failures that the previous process saved into the store.
func New(o Options) *Monitor {
	asks, may := policy{settings: o.Settings, byDefault: o.Default}, newPermit(o.Store, o.Settings, o.APIServers)
	m := &Monitor{
		Options: o, permit: may, looks: newLooks(), ledger: newLedger(o.Store, o.Memory, o.Log),
		asker:    &asker{ask: o.Ask, permit: may, ends: make(chan func(), 64)},
		reporter: &reporter{policy: asks, store: o.Store, log: o.Log, mayWrite: o.MayWrite, episodes: map[Episode]time.Time{}},
		kernel:   &kernel{read: o.Suspicions, permit: may, log: o.Log},
		walker:   &walker{policy: asks, store: o.Store, permit: may, looked: map[siblingsOf]time.Time{}, wanted: map[string]bool{}},
	}
	doubts := schedule.NewRates(nodeRate, doubtRate, doubtBurst)
	doubts.Even = true // an endpoint that failed must be noticed, however many tenants have others suspected
	m.suspects = suspicion.New(suspicion.Options{
		Jitter: rand.Float64, Cost: o.Cost(state.CheckOff), Rates: doubts, Changed: m.ledger.touch, Doubt: m.walker.wantSiblings,
		Note: func(n suspicion.Note) { m.report.Notes = append(m.report.Notes, n) },
	})
	m.checks = checks.New(checks.Options{
		Jitter: rand.Float64, Cost: (&price{cost: o.Cost, used: o.Used, times: 1}).of, Rates: schedule.NewRates(nodeRate, tenantRate, rateBurst),
		Max: maxChecks, Changed: m.ledger.touch, Note: func(n checks.Note) { m.report.Checks.Notes = append(m.report.Checks.Notes, n) },
	})
	m.ledger.suspects = m.suspects
	return m
}

const (
	// lookPeriod is how often a Monitor reads what the kernel noticed.
	lookPeriod = 200 * time.Millisecond
	// checkPause is the least time between two looks at who is to be checked, and whose health has changed.
	checkPause = 50 * time.Millisecond
)

// Run looks until the context ends. A nil Monitor does nothing.
func (m *Monitor) Run(ctx context.Context) error {
	if m == nil {
		return nil
	}
	look := time.NewTicker(lookPeriod)
	defer look.Stop()
	turn := time.NewTicker(checkPause)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			m.end()
			return nil
		case now := <-look.C:
			m.look(ctx)
			m.save(now)
			m.tell() // not with each answer: it lists all suspicions
		case now := <-turn.C:
			m.ask(ctx)
			m.publish(now)
		case end := <-m.asker.ends:
			end()
		}
	}
}

// look reads what the kernel noticed, and looks at endpoints for the first time.
func (m *Monitor) look(ctx context.Context) {
	now := time.Now()
	if !m.walker.detects() {
		return
	}
	if !m.walker.tired(now) { // otherwise it waits in the kernel
		list, took := m.kernel.look()
		m.walker.budget.Used += took // a tenant can fill the sets
		m.suspect(list)
	}
	m.suspectSiblings()
	m.mu.Lock()
	first := m.looks.Due(now)
	m.mu.Unlock()
	for _, q := range first {
		go m.asker.one(ctx, &q.Question, func(a probe.Answer) { m.looked(q, a) })
	}
}

// suspect hands suspicions to the detector.
func (m *Monitor) suspect(list []Suspicion) {
	if len(list) == 0 {
		return
	}
	unknown := map[netip.AddrPort][]suspicion.Member{}
	m.mu.Lock()
	for _, s := range list {
		if !m.suspects.Knows(s.Endpoint) {
			unknown[s.Endpoint] = nil
		}
	}
	m.mu.Unlock()
	now := time.Now()
	if len(unknown) > 0 {
		m.walker.findMembers(unknown)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range list {
		reason := suspicion.Unanswered
		if s.Refusing {
			reason = suspicion.Refusing
		}
		m.suspects.Suspect(s.Endpoint, reason, unknown[s.Endpoint], now)
	}
}

// suspectSiblings puts the other endpoints of nodes that do not answer under suspicion.
func (m *Monitor) suspectSiblings() {
	now := time.Now()
	found := m.walker.findSiblings(now)
	if len(found) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for at, members := range found {
		m.suspects.Suspect(at, suspicion.SameNode, members, now)
	}
}

// ask asks everyone whose time has come.
func (m *Monitor) ask(ctx context.Context) {
	now := time.Now()
	m.mu.Lock()
	inquiries, questions := m.suspects.Due(now), m.checks.Due(now)
	m.mu.Unlock()
	for _, q := range inquiries {
		if q.Witnesses {
			go m.asker.witness(ctx, m.walker.witnesses(q.Nodes, q.Suspects), func(w suspicion.Witnesses) { m.witnessed(w); m.goOn(ctx) })
		} else {
			go m.asker.one(ctx, suspected(q.At), func(a probe.Answer) { m.inquired(q, a); m.goOn(ctx) })
		}
	}
	for _, q := range questions {
		go m.asker.one(ctx, &q.Question, func(a probe.Answer) { m.checked(q, a) })
	}
}

// goOn asks what follows from an answer: the second question comes at once.
func (m *Monitor) goOn(ctx context.Context) {
	if ctx.Err() == nil {
		m.suspectSiblings()
		m.ask(ctx)
	}
}

func (m *Monitor) checked(q checks.Question, a probe.Answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checks.Answered(q, a, time.Now())
	m.report.Checks.count(q.Check.Kind, a)
}

func (m *Monitor) looked(q checks.Question, a probe.Answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks.Answered(q, a, time.Now())
}

func (m *Monitor) inquired(q *suspicion.Inquiry, a probe.Answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	look := m.ledger.services[q.Service].look(q.At)
	m.suspects.Answered(q, a.Fault, look == nil || look.Passed, time.Now())
	if look != nil && a.Good() {
		look.Passed = true
	}
	m.report.Answers = append(m.report.Answers, a.Fault)
}

func (m *Monitor) witnessed(w suspicion.Witnesses) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.suspects.Witnessed(w, time.Now())
}

// publish writes the health of Services that may have changed into the store.
func (m *Monitor) publish(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.checks.Fed() {
		m.Store.PlanAgain(name) // the plan has it join the checks
	}
	m.ledger.publish(now)
}

// save saves the failures for the next process, if they have changed.
func (m *Monitor) save(now time.Time) {
	m.mu.Lock()
	list, due := m.ledger.toSave(now)
	m.mu.Unlock()
	if due && !m.ledger.save(list, now) {
		m.mu.Lock()
		m.ledger.unsaved = true
		m.mu.Unlock()
	}
}

// end saves what this process has found out until its end, also what the store has not been told.
func (m *Monitor) end() {
	for len(m.asker.ends) > 0 {
		(<-m.asker.ends)()
	}
	m.mu.Lock()
	m.ledger.last(time.Now())
	m.mu.Unlock()
	m.save(m.ledger.nextSave)
}

// tell logs and reports what happened.
func (m *Monitor) tell() {
	m.mu.Lock()
	r, left := m.report, m.suspects.Left()
	m.report = Report{OnBackups: r.OnBackups}
	if len(r.Notes)+len(r.Moves) > 0 {
		r.Statuses = suspects(m.ledger, state.Name{})
	}
	r.Checks.Total, r.Checks.Failing = m.checks.Counts()
	m.mu.Unlock()
	m.reporter.sayLeft(left, time.Now())
	m.reporter.write(&r)
	m.Report(r)
}
