package outlier

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

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
		Ejected:        "endpoints that do not answer get no new connections",
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
	StateSlowStart                // it has returned, and its weight grows
)

func (s State) String() string {
	return [...]string{"calm", "suspected", "failed", "failing", "backup, in use", "backup, not used", "slow start"}[s]
}

// Status is one thing that is known of an endpoint.
type Status struct {
	Endpoint netip.AddrPort
	Protocol state.Protocol // an endpoint under suspicion is one of TCP
	Node     string
	State    State
	Since    time.Time // the zero time: it is not known, or says nothing
	Reason   Reason
	Answer   Answer // the latest one
	Hold     Hold   // why it is not ejected although it failed
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

// Status lists the endpoints that are suspected or failed, sorted by address.
func (d *Detector) Status() []Status { return d.statuses(d.sorted()) }

// StatusOf is Status of the endpoints of one Service.
func (d *Detector) StatusOf(service state.Name) []Status {
	return d.statuses(sorted(d.services[service]))
}

func (d *Detector) statuses(endpoints []*endpoint) (list []Status) {
	for _, e := range endpoints {
		if e.phase != calm {
			s := d.status(e)
			if e.phase == failed && e.hold == None && len(s.Ejected) == 0 {
				s.Hold = d.planHold(e)
			}
			list = append(list, s)
		}
	}
	return list
}

func (d *Detector) sorted() []*endpoint { return sorted(d.tracked) }

func sorted(endpoints map[netip.AddrPort]*endpoint) []*endpoint {
	return slices.SortedFunc(maps.Values(endpoints), func(a, b *endpoint) int { return a.at.Compare(b.at) })
}

func (d *Detector) status(e *endpoint) Status {
	s := Status{
		Endpoint: e.at, Protocol: state.TCP, Node: e.node(), State: e.state(), Since: e.since, Reason: e.reason, Answer: e.latest,
		Hold: e.hold, StillReady: e.stillReady && e.ready(),
	}
	for _, m := range e.members {
		s.Services = append(s.Services, m.Service)
		if d.planned[m.Service].has(e.at) {
			s.Ejected = append(s.Ejected, m.Service)
		}
	}
	return s
}

// planHold returns why no plan leaves an endpoint out that may be ejected.
func (d *Detector) planHold(e *endpoint) Hold {
	why := Observed
	for _, m := range e.members {
		planned, ejects := d.planned[m.Service]
		switch {
		case planned.Mass:
			return Mass
		case ejects && d.doubtful[m.Service]:
			return Doubtful
		case ejects:
			why = Limit
		}
	}
	return why
}

// Ejection is what the plan of a Service leaves out.
type Ejection struct {
	Endpoints []netip.AddrPort // sorted
	Mass      bool             // too many fell at once
}

// has reports whether an endpoint is ejected.
func (e Ejection) has(at netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(e.Endpoints, at, netip.AddrPort.Compare)
	return found
}

// Planned records what the plan of a Service leaves out; nil: the Service does not eject, or is gone.
func (d *Detector) Planned(service state.Name, is *Ejection, now time.Time) {
	was := d.planned[service]
	if is == nil || !d.Has(service) {
		delete(d.planned, service)
		is = &Ejection{}
	} else {
		d.planned[service] = *is
	}
	tell := func(kind Kind, list []netip.AddrPort) {
		if len(list) > 0 {
			d.notes = append(d.notes, Note{Kind: kind, At: now, Service: service, Endpoints: list})
		}
	}
	tell(Ejected, without(is.Endpoints, was.Endpoints))
	tell(Returned, without(was.Endpoints, is.Endpoints))
	if is.Mass && !was.Mass {
		d.notes = append(d.notes, Note{Kind: FellAtOnce, At: now, Service: service})
	}
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

func (d *Detector) note(kind Kind, e *endpoint, now time.Time) {
	d.notes = append(d.notes, Note{Kind: kind, At: now, Status: d.status(e)})
}

// Notes returns what happened since the last call.
func (d *Detector) Notes() []Note {
	notes := d.notes
	d.notes = nil
	return notes
}

// Left returns how many suspicions found no room since the last call.
func (d *Detector) Left() int {
	n := d.left
	d.left = 0
	return n
}
