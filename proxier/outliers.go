package proxier

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Suspicion is an endpoint that the kernel noticed.
type Suspicion struct {
	Endpoint netip.AddrPort
	Refusing bool
	Packets  uint64 // since it was noticed first
}

// OutlierOptions configure Outliers. The functions are called from its goroutines, and may block.
type OutlierOptions struct {
	Settings *config.Settings
	Store    *state.Store
	// Check asks an endpoint as the active check of a Service wants it.
	Check func(context.Context, activecheck.Target, *state.HealthCheck) activecheck.Result
	// Default is the check of Services that ask for none; nil: no check.
	Default *state.HealthCheck
	// Suspicions reads what the kernel noticed lately, with refusing endpoints or without. It is not called if the
	// settings turn the detection off.
	Suspicions func(refusing bool) ([]Suspicion, error)
	// Ask asks an endpoint whether it accepts connections.
	Ask func(context.Context, netip.AddrPort) outlier.Answer
	// Delete deletes connections that never had an answer.
	Delete func(list []conntrack.Unanswered, nodePorts []netip.Addr) (int, error)
	// Report hears what happened. It must not block.
	Report func(OutlierReport)
	Log    *slog.Logger
}

// OutlierReport tells what happened to endpoints that do not answer.
type OutlierReport struct {
	Notes    []outlier.Note
	Statuses []outlier.Status // all endpoints that are suspected or failed
	Answers  []outlier.Answer // to questions that ended
	Left     int              // suspicions that found no room
	Deleted  int              // connections without an answer
	Cut      int              // endpoints whose connections these were
	CutError error            // nil: all such connections are deleted
	Episodes []Episode        // that began
	Checks   CheckReport
	Uses     Uses
}

// Outliers finds endpoints that do not answer or fail the checks of their Services, and tells planning to leave them
// out. It works beside the loop: it has goroutines of its own that wait for answers of the kernel and of endpoints.
//
// While nothing is wrong, it reads two empty sets of the kernel five times a second, and remembers nothing of Services
// that only observe.
type Outliers struct {
	OutlierOptions
	changed chan struct{} // Services wait to be planned again

	mu       sync.Mutex
	detector *outlier.Detector
	drafts   map[state.Name]*ejectionDraft
	looks    firstLooks
	refusals bool                     // a Service has asked for it
	episodes map[state.Name]bool      // that go on; true: an Event said that perhaps only this node cannot reach an endpoint
	failures map[state.Name]time.Time // when an episode of failing checks began
	checker  *activecheck.Checker
	slow     slowStarts

	sooner     chan struct{} // the checker has something to ask before nextChecks
	nextChecks time.Time

	out     map[state.Name][]netip.AddrPort // of bad endpoints, in the plans that the loop has Set
	rows    map[state.Name][]outlier.Status // what else Statuses tells of these plans
	uses    Uses                            // counts these
	told    Uses                            // by the latest report
	planned []conntrack.Unanswered          // connections to delete when the kernel has the plans

	answers  chan answered
	seen     map[suspicionKey]uint64
	siblings siblings // only for the goroutine of Run
	nextScan time.Time
	failing  bool // the latest reading of the kernel failed
	report   OutlierReport
	lines    Lines
	sums     outlierSums
}

type suspicionKey struct {
	at       netip.AddrPort
	refusing bool
}

// answered is the end of a question.
type answered struct {
	question  outlier.Question
	answer    outlier.Answer
	witnesses outlier.Witnesses
	firstLook bool
}

// outlierPeriod is how often Outliers looks.
const outlierPeriod = 200 * time.Millisecond

// NewOutliers returns Outliers that have not looked yet.
func NewOutliers(o OutlierOptions) *Outliers {
	return &Outliers{
		OutlierOptions: o, changed: make(chan struct{}, 1),
		detector: outlier.New(outlier.Settings{MaxEjected: o.Settings.MaxEjected, Jitter: rand.Float64}),
		drafts:   map[state.Name]*ejectionDraft{}, looks: newFirstLooks(), episodes: map[state.Name]bool{},
		failures: map[state.Name]time.Time{},
		checker:  activecheck.New(activecheck.Settings{Jitter: rand.Float64}), sooner: make(chan struct{}, 1), slow: newSlowStarts(),
		out: map[state.Name][]netip.AddrPort{}, rows: map[state.Name][]outlier.Status{},
		lines: NewLines(o.Log, o.Settings.Budgets.NamespaceLogLines), sums: outlierSums{log: o.Log},
		answers: make(chan answered, 64), seen: map[suspicionKey]uint64{}, siblings: newSiblings(),
	}
}

// Run looks until the context ends.
func (o *Outliers) Run(ctx context.Context) error {
	if o == nil {
		return nil
	}
	var checks sync.WaitGroup
	defer checks.Wait()
	checks.Go(func() { o.runChecks(ctx) })
	tick := time.NewTicker(outlierPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if o.detects() {
				o.look(ctx)
			}
			o.grow(now)
		case a := <-o.answers:
			o.take(a)
			o.suspectSiblings()
			o.ask(ctx)
		}
		o.tell()
	}
}

// detects reports whether anybody looks for endpoints that do not answer clients.
func (o *Outliers) detects() bool { return o.Settings.OutlierDetection != config.OutlierOff }

// look reads what the kernel noticed, and asks who is to be asked.
func (o *Outliers) look(ctx context.Context) {
	o.mu.Lock()
	refusals := o.refusals
	o.mu.Unlock()
	list, err := o.Suspicions(refusals)
	if failed := err != nil; failed != o.failing {
		o.failing = failed
		if failed {
			o.Log.Error("cannot read which endpoints do not answer; trying again", "every", outlierPeriod, "error", err)
		} else {
			o.Log.Info("reading which endpoints do not answer works again")
		}
	}
	o.suspect(o.fresh(list))
	o.suspectSiblings()
	o.ask(ctx)
	o.lookFirst(ctx)
}

// fresh returns those of the suspicions that are new since the last call.
func (o *Outliers) fresh(list []Suspicion) (out []Suspicion) {
	before := o.seen
	o.seen = make(map[suspicionKey]uint64, len(list))
	for _, s := range list {
		key := suspicionKey{s.Endpoint, s.Refusing}
		o.seen[key] = s.Packets
		if n, known := before[key]; !known || n != s.Packets {
			out = append(out, s)
		}
	}
	return out
}

// suspect hands suspicions to the detector. To find the Services of an endpoint, it walks over all slices: an index
// would cost memory for every endpoint of the cluster, all the time. The walks take a twentieth of the time at most.
func (o *Outliers) suspect(list []Suspicion) {
	if len(list) == 0 {
		return
	}
	unknown := map[netip.AddrPort][]outlier.Member{}
	o.mu.Lock()
	for _, s := range list {
		if !o.detector.Knows(s.Endpoint) {
			unknown[s.Endpoint] = nil
		}
	}
	o.mu.Unlock()
	began := time.Now()
	if len(unknown) > 0 && began.Before(o.nextScan) {
		for _, s := range list { // with the next look
			delete(o.seen, suspicionKey{s.Endpoint, s.Refusing})
		}
		return
	}
	if len(unknown) > 0 {
		o.findMembers(unknown)
		o.nextScan = began.Add(20 * time.Since(began))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range list {
		reason := outlier.Unanswered
		if s.Refusing {
			reason = outlier.Refusing
		}
		o.detector.Suspect(s.Endpoint, reason, unknown[s.Endpoint], began)
		if node := o.detector.Unanswered(s.Endpoint); node != "" {
			o.siblings.want(siblingsOf{node: node}, began)
		}
	}
}

// ask asks everyone whose time has come.
func (o *Outliers) ask(ctx context.Context) {
	o.mu.Lock()
	questions := o.detector.Due(time.Now())
	o.mu.Unlock()
	for _, q := range questions {
		go func() {
			a := answered{question: q}
			if q.Witnesses {
				a.witnesses = o.askWitnesses(ctx, q.Nodes)
			} else {
				a.answer = o.Ask(ctx, q.At)
			}
			o.answer(ctx, a)
		}()
	}
}

// lookFirst asks endpoints whether they answer this node at all.
func (o *Outliers) lookFirst(ctx context.Context) {
	o.mu.Lock()
	looks := o.looks.due(time.Now())
	o.mu.Unlock()
	for _, at := range looks {
		go func() {
			o.answer(ctx, answered{question: outlier.Question{At: at}, answer: o.Ask(ctx, at), firstLook: true})
		}()
	}
}

func (o *Outliers) answer(ctx context.Context, a answered) {
	select {
	case o.answers <- a:
	case <-ctx.Done():
	}
}

// take hands an answer to the detector.
func (o *Outliers) take(a answered) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	switch {
	case a.question.Witnesses:
		o.detector.Witnessed(a.witnesses, now)
		return
	case a.firstLook:
		o.looks.ended(a.question.At, a.answer == outlier.Good, now)
		return
	}
	if node := o.detector.Doubts(a.question.At, a.answer); node != "" {
		o.siblings.want(siblingsOf{node: node, asked: true}, now)
	}
	o.detector.Answered(a.question.At, a.answer, o.looks.reached(a.question.At), now)
	if a.answer == outlier.Good {
		o.looks.ended(a.question.At, true, now)
	}
	o.report.Answers = append(o.report.Answers, a.answer)
}

// tell reports what happened, and has the loop plan again.
func (o *Outliers) tell() {
	o.mu.Lock()
	r := o.report
	o.report = OutlierReport{}
	r.Notes, r.Left = o.detector.Notes(), o.detector.Left()
	if len(r.Notes) > 0 {
		r.Statuses = o.detector.Status()
	}
	r.Checks.Notes = o.checker.Notes()
	r.Checks.Total, r.Checks.Failing = o.checker.Counts()
	r.Uses = o.uses
	news := r.Uses != o.told
	o.told = r.Uses
	wanted := o.detector.WantsPlans()
	o.mu.Unlock()
	if wanted {
		o.signal()
	}
	o.sums.add(&r, time.Now())
	if news || len(r.Notes)+len(r.Answers)+r.Left+r.Deleted+len(r.Checks.Notes)+r.Checks.Passed+len(r.Checks.Failed) > 0 {
		o.write(&r)
		o.Report(r)
	}
}

func (o *Outliers) signal() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// wake delivers a value when Services have to be planned again.
func (o *Outliers) wake() <-chan struct{} {
	if o == nil {
		return nil
	}
	return o.changed
}

// replan returns the Services that have to be planned again.
func (o *Outliers) replan() []state.Name {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Concat(o.detector.Changed(), o.checker.Changed(), o.slow.changed())
}

// modeOf returns what happens to endpoints of a Service. Endpoints of the cluster's own Services are ejected only if
// the Service itself asks for it: DNS and the API server are what everything else needs.
func (o *Outliers) modeOf(name state.Name, asked state.OutlierMode) state.OutlierMode {
	switch {
	case !o.detects():
		return state.OutlierOff
	case asked != state.OutlierDefault:
		return asked
	case o.Settings.OutlierDetection != config.OutlierEject, needed(name):
		return state.OutlierObserve
	}
	return state.OutlierEject
}

// needed reports whether a Service belongs to the cluster itself.
func needed(name state.Name) bool {
	return name.Namespace == "kube-system" || name == kubernetesService()
}

func kubernetesService() state.Name { return state.Name{Namespace: "default", Name: "kubernetes"} }

// offProblem is for a Service whose annotation has no effect, because the flag turns everything off.
func offProblem(off bool, planned *plan.Service) []state.Problem {
	mode := planned.Outliers.Mode
	if !off || mode != state.OutlierObserve && mode != state.OutlierEject {
		return nil
	}
	return []state.Problem{{
		Kind: "Service", Object: planned.Name, Field: "metadata.annotations[verdict-proxy.github.io/outlier-detection]",
		Reason: "--outlier-detection=off on this node: the annotation has no effect",
	}}
}

// nodesOf are the nodes that slices name, without this one.
func (o *Outliers) nodesOf(list []*state.Slice) int {
	var nodes []string
	for _, sl := range list {
		for i := range sl.Endpoints {
			if n := sl.Endpoints[i].Node; n != "" && n != o.Settings.NodeName {
				nodes = append(nodes, n)
			}
		}
	}
	slices.Sort(nodes)
	return len(slices.Compact(nodes))
}
