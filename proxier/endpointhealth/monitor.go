package endpointhealth

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Suspicion is an endpoint that the kernel noticed.
type Suspicion struct {
	Endpoint netip.AddrPort
	Refusing bool
	Packets  uint64 // since it was noticed first
}

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
	// Ask asks an endpoint, and Cost says how much processor time that takes.
	Ask    func(context.Context, *Question) Answer
	Cost   func(state.CheckKind) time.Duration
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
	permit  permit
	work    chan *checkQuestion
	answers chan answered

	mu       sync.Mutex
	detector *detector
	checker  *checker
	looks    firstLooks
	rates    *rates
	paces    *rates // of publishing
	services map[state.Name]*watched
	recalled map[state.Name]state.Health // of the process before, until the Service is planned
	behind   map[state.Name]bool         // Services whose health the store may not have
	late     map[state.Name]bool         // those of them that must wait for publishPace
	queue    []state.Name                // the same, in the order in which they wait
	refusals bool                        // a Service has asked for it
	uses     int                         // Services on backups
	told     int                         // uses in the latest report
	report   Report
	unsaved  bool

	// The rest is for the goroutine of Run.
	seen         map[suspicionKey]uint64
	siblings     siblings
	scans        bucket // time of walks over all slices
	nextLate     time.Time
	episodes     map[state.Name]bool      // that go on; true: an Event said that perhaps only this node cannot reach an endpoint
	failing      map[state.Name]time.Time // when an episode of failing checks began
	readFailing  bool                     // the latest reading of the kernel failed
	left         int                      // suspicions that found no room, since the latest line about them
	leftAt       time.Time
	nextSave     time.Time
	sweptFailing time.Time // when failing lost the episodes that had ended
	saveFailing  bool
}

type suspicionKey struct {
	at       netip.AddrPort
	refusing bool
}

// watched is a Service whose endpoints are looked at.
type watched struct {
	ejects    bool
	check     *state.HealthCheck // nil: none
	allDown   state.AllDown
	choices   []plan.Choice   // of the latest plan
	published state.Health    // what the store knows
	next      time.Time       // when the store may be told again
	onBackups time.Time       // since when backups are in use; zero: they are not
	problems  []state.Problem // of the latest Set
}

// New returns a Monitor. It writes the failures that the previous process saved into the store.
func New(o Options) *Monitor {
	r := newRates()
	m := &Monitor{
		Options: o, permit: newPermit(&o), work: make(chan *checkQuestion), answers: make(chan answered, 64),
		detector: newDetector(rand.Float64), checker: newChecker(rand.Float64, o.Cost, r), looks: newFirstLooks(), rates: r,
		paces:    newTenantRates(1, paceBurst),
		services: map[state.Name]*watched{}, recalled: map[state.Name]state.Health{}, behind: map[state.Name]bool{},
		late: map[state.Name]bool{}, seen: map[suspicionKey]uint64{}, siblings: newSiblings(), episodes: map[state.Name]bool{},
		failing: map[state.Name]time.Time{},
	}
	doubts := newTenantRates(doubtRate, doubtBurst)
	m.detector.may = func(namespace string, now time.Time) bool { return doubts.take(namespace, m.Cost(state.CheckOff), now) }
	m.recall()
	return m
}

// lookPeriod is how often a Monitor reads what the kernel noticed.
const lookPeriod = 200 * time.Millisecond

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
			m.save(m.nextSave) // at once
			return nil
		case now := <-look.C:
			if m.detects() {
				m.look()
			}
			m.ask(ctx, m.detects())
			m.save(now)
			m.tell() // not with each answer: it lists all suspicions
		case <-turn.C:
			m.ask(ctx, false)
		case a := <-m.answers:
			m.take(a)
			m.suspectSiblings()
			if a.check == nil {
				m.ask(ctx, false) // the second question comes at once
			}
		}
		m.publish(time.Now())
	}
}

// detects reports whether anybody looks for endpoints that do not answer clients.
func (m *Monitor) detects() bool { return m.Settings.OutlierDetection != config.OutlierOff }

// look reads what the kernel noticed.
func (m *Monitor) look() {
	m.mu.Lock()
	refusals := m.refusals
	m.mu.Unlock()
	list, err := m.Suspicions(refusals)
	if failed := err != nil; failed != m.readFailing {
		m.readFailing = failed
		if failed {
			m.Log.Error("cannot read which endpoints do not answer; trying again", "every", lookPeriod, "error", err)
		} else {
			m.Log.Info("reading which endpoints do not answer works again")
		}
	}
	m.suspect(m.fresh(list))
	m.suspectSiblings()
}

// fresh returns those of the suspicions that are new since the last call.
func (m *Monitor) fresh(list []Suspicion) (out []Suspicion) {
	before := m.seen
	m.seen = make(map[suspicionKey]uint64, len(list))
	for _, s := range list {
		if m.permit.refuses(s.Endpoint) != "" {
			continue
		}
		key := suspicionKey{s.Endpoint, s.Refusing}
		m.seen[key] = s.Packets
		if n, known := before[key]; !known || n != s.Packets {
			out = append(out, s)
		}
	}
	return out
}

// suspect hands suspicions to the detector.
func (m *Monitor) suspect(list []Suspicion) {
	if len(list) == 0 {
		return
	}
	unknown := map[netip.AddrPort][]Member{}
	m.mu.Lock()
	for _, s := range list {
		if !m.detector.Knows(s.Endpoint) {
			unknown[s.Endpoint] = nil
		}
	}
	m.mu.Unlock()
	began := time.Now()
	if len(unknown) > 0 && m.scans.spent(scanRate, scanBurst, began) {
		for _, s := range list { // with the next look
			delete(m.seen, suspicionKey{s.Endpoint, s.Refusing})
		}
		return
	}
	if len(unknown) > 0 {
		m.findMembers(unknown)
		m.scans.used += time.Since(began)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range list {
		reason := Unanswered
		if s.Refusing {
			reason = Refusing
		}
		m.detector.Suspect(s.Endpoint, reason, unknown[s.Endpoint], began)
		if node := m.detector.Unanswered(s.Endpoint); node != "" {
			m.siblings.want(siblingsOf{node: node}, began)
		}
	}
}

// take hands an answer to whoever asked.
func (m *Monitor) take(a answered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, at := time.Now(), a.inquiry.At
	switch {
	case a.check != nil:
		m.checker.Answered(*a.check, a.answer, now)
		m.report.Checks.count(a)
		return
	case a.inquiry.Witnesses:
		m.detector.Witnessed(a.witnesses, now)
		return
	case a.firstLook:
		m.looks.ended(at, a.answer.Good(), now)
		return
	}
	if node := m.detector.Doubts(at, a.answer.Fault); node != "" {
		m.siblings.want(siblingsOf{node: node, asked: true}, now)
	}
	m.detector.Answered(at, a.answer.Fault, m.looks.reached(at), now)
	if a.answer.Good() {
		m.looks.ended(at, true, now)
	}
	m.report.Answers = append(m.report.Answers, a.answer.Fault)
}

// Watches reports whether the plan of a Service has to tell what becomes of its endpoints.
func (m *Monitor) Watches(svc *state.Service) bool {
	return m != nil && (m.ejects(svc) || m.checkOf(svc) != nil)
}

func (m *Monitor) ejects(svc *state.Service) bool {
	return m.modeOf(svc.Name, svc.Outliers.Mode) == state.OutlierEject
}

// modeOf returns what happens to endpoints of a Service. Endpoints of the cluster's own Services are ejected only if
// the Service itself asks for it: DNS and the API server are what everything else needs.
func (m *Monitor) modeOf(name state.Name, asked state.OutlierMode) state.OutlierMode {
	switch {
	case !m.detects():
		return state.OutlierOff
	case asked != state.OutlierDefault:
		return asked
	case m.Settings.OutlierDetection != config.OutlierEject, needed(name):
		return state.OutlierObserve
	}
	return state.OutlierEject
}

// needed reports whether a Service belongs to the cluster itself.
func needed(name state.Name) bool {
	return name.Namespace == "kube-system" || name == kubernetesService()
}

func kubernetesService() state.Name { return state.Name{Namespace: "default", Name: "kubernetes"} }

// checkOf returns the check of a Service; nil: none. Those of the cluster itself are checked only if they ask for it.
func (m *Monitor) checkOf(svc *state.Service) *state.HealthCheck {
	check := svc.Check
	if check == nil && !needed(svc.Name) {
		check = m.Default
	}
	if check == nil || check.Kind == state.CheckOff || !m.Settings.ActiveChecks {
		return nil
	}
	return check
}

// Refusals reports whether the program has to notice refusals from now on. What one Service has asked for stays: to take
// the rule out again would write all tables anew, and a tenant could do that all the time.
func (m *Monitor) Refusals() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refusals
}

// Set notes that the loop handed the plan of a Service to the dataplane. It returns what of the wish is not honored.
func (m *Monitor) Set(svc *state.Service, list []*state.Slice, choices []plan.Choice) []state.Problem {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name, now := svc.Name, time.Now()
	problems := m.off(svc)
	is := m.services[name]
	watch := m.Watches(svc)
	m.refusals = m.refusals || svc.Outliers.Refusals && m.detects()
	m.refresh(name, list, now)
	m.join(svc, list)
	if is == nil && !watch && len(choices) == 0 && m.recalled[name] == nil {
		return problems // nearly every Service, unless all eject or are checked
	}
	if is == nil {
		is = &watched{}
		m.services[name] = is
	}
	if m.adopt(svc, is, choices, now) {
		is.problems = slices.Concat(problems, m.setQuestions(name, is, now))
		m.restore(name, is, list, now)
		m.behind[name] = true
	}
	if !slices.Equal(m.Store.Health(name), is.published) {
		m.behind[name] = true // the Service was deleted and written again, and the loop has seen only the end
	}
	if !watch && len(choices) == 0 {
		m.drop(name)
	}
	return is.problems
}

// adopt takes over what a Service asks for and what its plan says. It reports whether other endpoints are to be asked, or in
// another way.
func (m *Monitor) adopt(svc *state.Service, is *watched, choices []plan.Choice, now time.Time) (changed bool) {
	ejects, check := m.ejects(svc), m.checkOf(svc)
	changed = !sameEndpoints(is.choices, choices) || is.ejects != ejects || !sameCheck(is.check, check)
	m.chosen(svc.Name, is, choices, now)
	is.ejects, is.check, is.allDown = ejects, check, svc.AllDown
	return changed || m.recalled[svc.Name] != nil || m.checker.starves(svc.Name)
}

func sameEndpoints(a, b []plan.Choice) bool {
	return slices.EqualFunc(a, b, func(x, y plan.Choice) bool { return x.At == y.At && x.Protocol == y.Protocol && x.Local == y.Local })
}

func sameCheck(a, b *state.HealthCheck) bool { return a == b || a != nil && b != nil && *a == *b }

// Remove notes that a Service is gone.
func (m *Monitor) Remove(name state.Name) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.permit.translated.set(name, nil, time.Now())
	m.refresh(name, nil, time.Now())
	if is := m.services[name]; is != nil {
		m.chosen(name, is, nil, time.Now())
		is.ejects, is.check = false, nil
		m.setQuestions(name, is, time.Now())
	}
	m.drop(name)
}

// drop forgets a Service that nobody watches.
func (m *Monitor) drop(name state.Name) {
	if is := m.services[name]; is != nil && len(is.published) > 0 || m.recalled[name] != nil {
		m.unsaved = true
	}
	delete(m.services, name)
	delete(m.recalled, name)
	m.behind[name] = true
}

// setQuestions chooses which endpoints of a Service are checked and looked at.
func (m *Monitor) setQuestions(name state.Name, is *watched, now time.Time) []state.Problem {
	var looks []netip.AddrPort
	var targets []Target
	excluded := 0
	for i := range is.choices {
		c := &is.choices[i]
		t, checked := targetOf(is.check, c.Protocol, c.At)
		looked := is.ejects && c.Protocol == state.TCP
		if !checked && !looked {
			continue
		}
		if looked && m.permit.refuses(c.At) == "" {
			looks = append(looks, c.At)
		}
		switch {
		case !checked:
		case m.permit.refuses(t.At) != "":
			excluded++
		default:
			targets = append(targets, t)
		}
	}
	m.looks.set(name, slices.Compact(looks))
	if len(targets) == 0 && !m.checker.Has(name) {
		return notAsked(name, excluded, 0)
	}
	return notAsked(name, excluded, m.checker.Set(name, is.check, targets, now))
}

// refresh gives the detector the conditions that slices have for endpoints under suspicion.
func (m *Monitor) refresh(name state.Name, list []*state.Slice, now time.Time) {
	if !m.detector.Has(name) {
		return
	}
	nodes := m.nodesOf(list)
	m.detector.Refresh(name, func(at netip.AddrPort) (Word, int, bool) {
		w, ok := wordOf(list, at)
		return w, nodes, ok
	}, now)
}

// restore has what the process before knew asked first: by all who may have said that it failed.
func (m *Monitor) restore(name state.Name, is *watched, list []*state.Slice, now time.Time) {
	health := m.recalled[name]
	if health == nil {
		return
	}
	delete(m.recalled, name)
	nodes := m.nodesOf(list)
	for i := range health {
		f := &health[i]
		if t, checked := targetOf(is.check, f.Protocol, f.At); checked {
			m.checker.restore(name, is.check, t, f, now)
		}
		w, found := wordOf(list, f.At)
		if found && is.ejects && f.Protocol == state.TCP {
			m.detector.restore(f, Member{Service: name, Word: w, Nodes: nodes}, now)
		}
	}
	is.published = health
}

// chosen records what a plan makes of the endpoints of a Service, and adds notes for what has changed.
func (m *Monitor) chosen(name state.Name, is *watched, choices []plan.Choice, now time.Time) {
	before := is.choices
	is.choices = choices
	tell := func(kind Kind, list []netip.AddrPort) {
		if len(list) > 0 {
			m.report.Notes = append(m.report.Notes, Note{Kind: kind, At: now, Service: name, Endpoints: list})
		}
	}
	was, out := leftOut(before), leftOut(choices)
	tell(Ejected, without(out, was))
	tell(Returned, without(was, out))
	backups := slices.ContainsFunc(choices, func(c plan.Choice) bool { return c.Backup && c.Use <= plan.KeptShare }) &&
		slices.ContainsFunc(choices, func(c plan.Choice) bool { return !c.Backup })
	switch {
	case backups == !is.onBackups.IsZero():
	case backups:
		is.onBackups = now
		m.uses++
	default:
		is.onBackups = time.Time{}
		m.uses--
	}
}

// choice finds what a plan makes of an endpoint; false: it has none.
func (w *watched) choice(protocol state.Protocol, at netip.AddrPort) (plan.Choice, bool) {
	i, found := slices.BinarySearchFunc(w.choices, at, func(c plan.Choice, a netip.AddrPort) int {
		return cmp.Or(c.At.Compare(a), cmp.Compare(c.Protocol, protocol))
	})
	if !found {
		return plan.Choice{}, false
	}
	return w.choices[i], true
}
