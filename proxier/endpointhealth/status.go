package endpointhealth

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Kind is what happened to an endpoint, or to the network of this node.
type Kind uint8

// The kinds.
const (
	SuspicionBegan Kind = iota
	SuspicionEnded      // by a good answer
	Failed              // by bad answers; the status says whether it is held, and why
	Recovered           // by good answers
	NewWord             // its EndpointSlice says something new about it
	EndpointGone
	Ejected     // the plan of a Service leaves endpoints out
	Returned    // the plan has them again
	FellAtOnce  // too many endpoints of a Service fell at once, and none is ejected
	NetworkLost // of this node
	NetworkBack
	StillReady // it has failed for stillReadyTime, and its EndpointSlice calls it ready
)

func (k Kind) String() string {
	return [...]string{
		SuspicionBegan: "asking an endpoint whether it answers",
		SuspicionEnded: "the endpoint answers",
		Failed:         "the endpoint does not answer",
		Recovered:      "an endpoint answers again",
		NewWord:        "the EndpointSlice of an endpoint that did not answer has changed; it gets connections again",
		EndpointGone:   "an endpoint that did not answer is gone",
		Ejected:        "endpoints do not answer or fail their check; they get no new connections",
		Returned:       "endpoints get connections again",
		FellAtOnce:     "endpoints of a Service on many nodes fell at the same time; none of them is ejected",
		NetworkLost:    "no endpoint on other nodes answers: this node has lost its network; nothing is ejected",
		NetworkBack:    "endpoints on other nodes answer again",
		StillReady:     "the endpoint has not answered for a minute; " + OnlyHere,
	}[k]
}

// OnlyHere is what StillReady means.
const OnlyHere = "its slice still calls it ready: perhaps only this node cannot reach it"

// Note is something that happened.
type Note struct {
	Kind   Kind
	At     time.Time
	Status Status // of the endpoint before it happened; after it, for SuspicionBegan, Failed and StillReady. Hold is never that of a plan
	// Service and Endpoints are set for Ejected, Returned and FellAtOnce, which have no Status.
	Service   state.Name
	Endpoints []netip.AddrPort
}

// State of an endpoint under suspicion.
type State uint8

// The states.
const (
	StateCalm        State = iota // a good answer has just cleared it
	StateSuspected                // it is being asked
	StateFailed                   // it does not answer, or refuses
	StateFailing                  // it fails the check of its Service
	StateBackupInUse              // it is a backup endpoint and gets connections
	StateBackupIdle               // it is a backup endpoint and gets none
)

func (s State) String() string {
	return [...]string{"calm", "suspected", "failed", "failing", "backup, in use", "backup, not used"}[s]
}

// Status is one thing that is known of an endpoint.
type Status struct {
	Endpoint netip.AddrPort
	Protocol state.Protocol // an endpoint under suspicion is one of TCP
	Node     string
	State    State
	Since    time.Time // the zero time: it is not known, or says nothing
	Reason   Reason
	Answer   Fault // of the latest answer
	Hold     Hold  // why it is not ejected although it failed
	Services []state.Name
	Ejected  []state.Name // those of the Services whose plans leave it out
	// StillReady: it has failed for stillReadyTime, and its EndpointSlice calls it ready.
	StillReady bool
	Why        string // of the states from StateFailing on, which have no Reason and no Answer
}

// Compare orders by endpoint, then by state.
func (s Status) Compare(o Status) int {
	return cmp.Or(s.Endpoint.Compare(o.Endpoint), cmp.Compare(s.Protocol, o.Protocol), cmp.Compare(s.State, o.State))
}

// Same reports whether two statuses tell of the same endpoint in the same way. A backup endpoint is in use or not.
func (s Status) Same(o Status) bool {
	backup := func(s State) bool { return s == StateBackupInUse || s == StateBackupIdle }
	return s.Endpoint == o.Endpoint && s.Protocol == o.Protocol && (s.State == o.State || backup(s.State) && backup(o.State))
}

// Statuses lists the endpoints that are suspected, failed, failing their checks, or backups, sorted by address. An endpoint
// can be listed more than once. Any goroutine may call it.
func (m *Monitor) Statuses() (list []Status) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list = m.suspects(m.detector.tracked)
	for name, is := range m.services {
		list = append(list, m.rows(name, is)...)
	}
	slices.SortStableFunc(list, Status.Compare)
	return list
}

// StatusesOf is Statuses of the endpoints of one Service. Any goroutine may call it.
func (m *Monitor) StatusesOf(name state.Name) (list []Status) {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list = m.suspects(m.detector.services[name])
	if is := m.services[name]; is != nil {
		list = append(list, m.rows(name, is)...)
	}
	slices.SortStableFunc(list, Status.Compare)
	return list
}

// suspects lists the statuses of endpoints under suspicion.
func (m *Monitor) suspects(endpoints map[netip.AddrPort]*endpoint) (list []Status) {
	for _, e := range sorted(endpoints) {
		if e.phase == calm {
			continue
		}
		s := m.detector.status(e)
		why := Observed
		for _, member := range e.members {
			is := m.services[member.Service]
			if is == nil || !is.ejects {
				continue
			}
			c, _ := is.choice(state.TCP, e.at)
			switch c.Use {
			case plan.LeftOut:
				s.Ejected = append(s.Ejected, member.Service)
			case plan.KeptLast:
				why = NobodyGood
			default:
				why = Limit
			}
		}
		if s.State == StateFailed && s.Hold == None && len(s.Ejected) == 0 {
			if s.Hold = m.detector.held(e); s.Hold == None {
				s.Hold = why
			}
		}
		list = append(list, s)
	}
	return list
}

// held returns why an endpoint is not among the failures that it belongs to.
func (d *detector) held(e *endpoint) Hold {
	for _, m := range e.members {
		switch {
		case d.fallen[m.Service]:
			return Mass
		case d.doubtful[m.Service]:
			return Doubtful
		}
	}
	return None
}

// rows lists the statuses of the endpoints of a Service that fail its check, and of its backups.
func (m *Monitor) rows(name state.Name, is *watched) (list []Status) {
	checks, o := m.checksOf(name, is)
	idle := is.whyIdle()
	for i := range is.choices {
		c := &is.choices[i]
		row := Status{Endpoint: c.At, Protocol: c.Protocol, Services: []state.Name{name}}
		if checks != nil && checks[i] != nil && checks[i].down {
			failing := row
			failing.State, failing.Since, failing.Why = StateFailing, checks[i].since, checks[i].why
			if failing.Hold = o.hold(checks[i], c.Local); failing.Hold == None {
				failing.Hold = holdOfUse(c.Use)
			}
			list = append(list, failing)
		}
		switch {
		case !c.Backup:
		case c.Use > plan.KeptShare:
			row.State, row.Why = StateBackupIdle, idle
			list = append(list, row)
		case !is.onBackups.IsZero():
			row.State, row.Since, row.Why = StateBackupInUse, is.onBackups, "no other endpoint is good"
			list = append(list, row)
		}
	}
	return list
}

// whyIdle says why a backup endpoint is not used.
func (w *watched) whyIdle() string {
	has := func(uses ...plan.Use) bool {
		return slices.ContainsFunc(w.choices, func(c plan.Choice) bool { return slices.Contains(uses, c.Use) })
	}
	switch {
	case !w.onBackups.IsZero():
		return "it is bad itself"
	case has(plan.InUse, plan.KeptShare):
		return "another endpoint is good"
	}
	return "no endpoint is good, and on-all-down is " + w.allDown.String()
}

func holdOfUse(u plan.Use) Hold {
	switch u {
	case plan.KeptLast:
		return NobodyGood
	case plan.KeptShare:
		return Limit
	}
	return None
}

func sorted(endpoints map[netip.AddrPort]*endpoint) []*endpoint {
	return slices.SortedFunc(maps.Values(endpoints), func(a, b *endpoint) int { return a.at.Compare(b.at) })
}

func (d *detector) status(e *endpoint) Status {
	s := Status{
		Endpoint: e.at, Protocol: state.TCP, Node: e.node(), State: e.state(), Since: e.since, Reason: e.reason, Answer: e.latest,
		Hold: e.hold, StillReady: e.stillReady && e.ready(),
	}
	for _, m := range e.members {
		s.Services = append(s.Services, m.Service)
	}
	return s
}

func leftOut(choices []plan.Choice) (list []netip.AddrPort) {
	for i := range choices {
		if choices[i].Use == plan.LeftOut {
			list = append(list, choices[i].At)
		}
	}
	return list
}

// without lists what is in the first list only. Both are sorted.
func without(list, other []netip.AddrPort) (out []netip.AddrPort) {
	for _, at := range list {
		if _, found := slices.BinarySearchFunc(other, at, netip.AddrPort.Compare); !found {
			out = append(out, at)
		}
	}
	return out
}

func (e *endpoint) state() State {
	switch e.phase {
	case suspected:
		return StateSuspected
	case failed:
		return StateFailed
	}
	return StateCalm
}

func (d *detector) note(kind Kind, e *endpoint, now time.Time) {
	d.notes = append(d.notes, Note{Kind: kind, At: now, Status: d.status(e)})
}

// Notes returns what happened since the last call.
func (d *detector) Notes() []Note {
	notes := d.notes
	d.notes = nil
	return notes
}

// Left returns how many suspicions found no room since the last call.
func (d *detector) Left() int {
	n := d.left
	d.left = 0
	return n
}
