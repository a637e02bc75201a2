package endpointhealth

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Monitor finds out which endpoints are good, and writes it into the store. It runs beside the loop, because it waits for
// answers of the kernel and of endpoints. It decides nothing about pools, which is the work of package plan.
//
// While nothing is wrong, it reads two empty sets of the kernel five times a second, and remembers nothing of Services
// that only observe.
type Monitor struct {
	*Options
	permit   *permit
	asker    *asker
	kernel   *kernel
	walker   *walker
	reporter *reporter

	mu     sync.Mutex // guards what follows
	checks *checks.Detector
	ledger *ledger
	report Report
}

// New returns a Monitor. It writes the failures that the previous process saved into the store.
func New(o Options) *Monitor {
	granted := &permit{
		Options: &o, excluded: config.Prefixes(o.Settings.HealthCheckExclude),
		served: map[state.Name][]span{}, uses: map[span]use{}, ranges: map[netip.Addr][]span{},
	}
	m := &Monitor{
		Options: &o, permit: granted, ledger: newLedger(&o), asker: &asker{permit: granted, ends: make(chan func(), 64)},
		reporter: &reporter{Options: &o, episodes: map[Episode]time.Time{}}, kernel: &kernel{permit: granted},
		walker: &walker{permit: granted, sought: report.Lately{}, wanted: map[string]bool{}},
	}
	m.checks = checks.NewDetector(checks.Options{
		Terms: termsOf(&o), Jitter: rand.Float64, Changed: m.ledger.touch, Doubt: m.walker.wantSiblings,
		Reaches: func(s *checks.Suspect) bool {
			is := m.ledger.services[s.Service]
			return is == nil || is.Reaches(s)
		},
		Note: func(n checks.Note) { m.report.Notes = append(m.report.Notes, n) },
	})
	m.ledger.checks = m.checks
	return m
}

// checkPause is the least time between two rounds: who is to be asked, and whose health has changed.
const checkPause = 50 * time.Millisecond

// Run works until the context ends.
func (m *Monitor) Run(ctx context.Context) error {
	turn := time.NewTicker(checkPause)
	defer turn.Stop()
	for noticed := (time.Time{}); ; {
		select {
		case <-ctx.Done():
			m.end()
			return nil
		case now := <-turn.C:
			if now.Sub(noticed) >= noticePeriod-checkPause/2 {
				noticed = now
				m.notice()
				m.ledger.save(&m.mu, now)
				m.tell() // not with each answer: it lists all suspicions
			}
			m.ask(ctx)
			m.publish(now)
			turn.Reset(m.pause())
		case end := <-m.asker.ends:
			end()
		}
	}
}

// pause is the time until the next round. While nobody is asked, the monitor wakes up only for what the kernel noticed: waking
// for nothing takes most of the processor time of an idle process.
func (m *Monitor) pause() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all, _ := m.checks.Counts(); all == 0 && m.checks.Idle() {
		return noticePeriod
	}
	return checkPause
}

// notice reads what the kernel noticed.
func (m *Monitor) notice() {
	now := time.Now()
	if !m.detects() {
		return
	}
	if !m.walker.tired(now) { // otherwise it waits in the kernel
		list, took := m.kernel.read()
		m.walker.budget.Used += took // a tenant can fill the sets
		m.suspect(list)
	}
	m.suspectSiblings()
}

// suspect hands suspicions to the detector.
func (m *Monitor) suspect(list []Suspicion) {
	if len(list) == 0 {
		return
	}
	unknown := map[netip.AddrPort][]checks.Member{}
	m.mu.Lock()
	for _, s := range list {
		if !m.checks.Knows(s.Endpoint) {
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
		reason := checks.Unanswered
		if s.Refusing {
			reason = checks.Refusing
		}
		m.checks.Suspect(s.Endpoint, reason, unknown[s.Endpoint], now)
	}
}

// suspectSiblings puts the other endpoints of nodes that do not answer under suspicion.
func (m *Monitor) suspectSiblings() {
	now := time.Now()
	found := m.walker.findSiblings(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	for at, members := range found {
		m.checks.Suspect(at, checks.SameNode, members, now)
	}
}

// ask asks everyone whose time has come.
func (m *Monitor) ask(ctx context.Context) {
	now := time.Now()
	m.mu.Lock()
	questions := m.checks.Due(now)
	m.mu.Unlock()
	for _, q := range questions {
		if q.Doubts != nil {
			go m.asker.witness(ctx, m.walker.witnesses(q.Doubts), func(w checks.Witnesses) { m.witnessed(w); m.goOn(ctx) })
			continue
		}
		go m.asker.one(ctx, &q.Question, func(a probe.Answer) {
			if m.answered(q, a); q.Suspect != nil {
				m.goOn(ctx)
			}
		})
	}
}

// goOn asks what follows from an answer: the second question comes at once.
func (m *Monitor) goOn(ctx context.Context) {
	if ctx.Err() == nil {
		m.suspectSiblings()
		m.ask(ctx)
	}
}

func (m *Monitor) answered(q checks.Question, a probe.Answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.Purpose != checks.Look {
		m.report.heard(&q, a)
	}
	m.checks.Answered(q, a, time.Now())
}

func (m *Monitor) witnessed(w checks.Witnesses) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checks.Witnessed(w, time.Now())
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

// end saves what this process has found out until its end, also what the store has not been told.
func (m *Monitor) end() {
	for len(m.asker.ends) > 0 {
		(<-m.asker.ends)()
	}
	m.mu.Lock()
	m.ledger.last(time.Now())
	m.mu.Unlock()
	m.ledger.save(&m.mu, m.ledger.nextSave)
}

// tell logs and reports what happened.
func (m *Monitor) tell() {
	m.mu.Lock()
	r := m.report
	m.report = Report{OnBackups: r.OnBackups}
	r.left, m.checks.Left = m.checks.Left, 0
	if len(r.Notes)+len(r.Moves) > 0 {
		r.Statuses = suspects(m.ledger, state.Name{})
	}
	r.Checks, r.Failing = m.checks.Counts()
	m.mu.Unlock()
	m.reporter.write(&r)
	m.Report(r)
}

// Watches reports whether the plan of a Service has to tell what becomes of its endpoints.
func (m *Monitor) Watches(svc *state.Service) bool {
	return m != nil && (m.ejects(svc) || m.checkOf(svc) != nil)
}

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
	problems := m.ignored(svc)
	if m.Store.Environment().Drain == state.Refusing {
		return problems // no Service has endpoints then, but the next process needs to know which of them fail
	}
	if svc.Outliers.Refusals && m.detects() {
		m.kernel.refusals.Store(true)
	}
	if !m.checks.Idle() {
		m.checks.Refresh(name, m.walker.members(svc, list, m.checks.Has), now)
	}
	watch := m.Watches(svc) || len(choices) > 0
	if !watch && m.ledger.services[name] == nil {
		return problems // nearly every Service, unless all eject or are checked
	}
	is := m.ledger.of(name)
	before := *is
	m.chosen(is, choices, now)
	is.Ejects, is.Check, is.allDown = m.ejects(svc), m.checkOf(svc), svc.AllDown
	if is.recalled || m.checks.Starves(name) || !before.asksAs(is) {
		m.setQuestions(is, now)
		m.inherit(is, &before, now)
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
	m.checks.Refresh(name, nil, now)
	if is := m.ledger.services[name]; is != nil {
		m.chosen(is, nil, now)
		m.setQuestions(is, now)
	}
	m.ledger.drop(name)
}

// setQuestions chooses which endpoints of a Service are checked and looked at.
func (m *Monitor) setQuestions(is *watched, now time.Time) {
	looks, targets, excluded := make([]probe.Target, len(is.Choices)), make([]probe.Target, len(is.Choices)), 0
	for i := range is.Choices {
		c := &is.Choices[i]
		own := probe.Target{Protocol: c.Protocol, At: c.At}
		if is.Ejects && c.Protocol == state.TCP && !m.permit.refuses(c.At) {
			looks[i] = own
		}
		t, checked := checks.TargetOf(is.Check, own)
		switch {
		case !checked:
		case m.permit.refuses(t.At):
			excluded++
		default:
			targets[i] = t
		}
	}
	is.Looks, _ = m.checks.Set(is.Name, checks.Look, &state.HealthCheck{Interval: lookAgain}, looks, is.Looks, now)
	list, left := m.checks.Set(is.Name, checks.Active, is.Check, targets, is.Checks, now)
	is.Checks, is.problems = list, notAsked(is.Name, excluded, left)
}

// inherit has endpoints that fail stay so until they have answered a check that has changed, and others stay good.
func (m *Monitor) inherit(is, before *watched, now time.Time) {
	for i, k := range before.Checks {
		c, found := checks.Find(is.Choices, before.Choices[i].Protocol, before.Choices[i].At)
		if found && k != nil && is.Checks[c] != nil && is.Checks[c] != k {
			m.checks.Inherit(is.Checks[c], k, now)
		}
	}
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
		if c, found := checks.Find(is.Choices, f.Protocol, f.At); found && is.Checks[c] != nil {
			m.checks.Restore(is.Checks[c], f, now)
		}
		if member, found := members[f.At]; found && is.Ejects && f.Protocol == state.TCP {
			m.checks.Recall(f, member, now)
		}
	}
}

// Statuses lists the endpoints of a Service that are suspected, failed, failing their checks, or backups, sorted by address; those of
// all Services if it has no name. An endpoint can be listed more than once. Any goroutine may call it.
func (m *Monitor) Statuses(of state.Name) []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	list, services := suspects(m.ledger, of), m.ledger.services
	if of != (state.Name{}) {
		services = map[state.Name]*watched{of: services[of]}
	}
	for _, is := range services {
		list = append(list, rowsOf(is)...)
	}
	slices.SortStableFunc(list, Status.Compare)
	return list
}
