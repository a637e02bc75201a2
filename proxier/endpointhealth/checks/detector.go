package checks

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	// maxTracked is how many endpoints of Services can be under suspicion. One namespace can have a quarter of what others leave.
	maxTracked  = 16_384
	MaxOfTenant = maxTracked / 4
)

// Detector decides about endpoints. Each Service asks its own: what a tenant writes about the endpoint of another changes nothing
// for the other. Its methods may be called from one goroutine at a time. Times must not go back.
type Detector struct {
	Options
	services map[state.Name]*suspects
	tracked  map[netip.AddrPort][]*Suspect
	addrs    map[netip.Addr]int // how many of the tracked endpoints have an address
	room     *schedule.Room
	Left     int                     // suspicions that found no room; the caller takes them away
	line     schedule.Line[*Suspect] // those that are suspected, and those that have failed and wait to return
	swept    time.Time               // when calm ones were forgotten
	witness  witness
}

// suspects are the tracked endpoints of a Service.
type suspects struct {
	endpoints map[netip.AddrPort]*Suspect
	doubtful  bool // no silent endpoint is added to the failures until others have answered
	fallen    bool // too many endpoints fell at once
}

// NewDetector returns a Detector that suspects nobody.
func NewDetector(o Options) *Detector {
	cost := func(*Suspect) time.Duration { return o.Cost(state.CheckOff) }
	return &Detector{
		Options: o, services: map[state.Name]*suspects{}, tracked: map[netip.AddrPort][]*Suspect{}, addrs: map[netip.Addr]int{},
		room: schedule.NewRoom(maxTracked, maxTracked/MaxOfTenant), line: schedule.NewLine(schedule.NewRoom(maxQuestions, 2), o.Rates, cost),
	}
}

// Idle reports whether no endpoint is under suspicion, so that Due has nothing to say.
func (d *Detector) Idle() bool { return len(d.tracked) == 0 }

// Knows reports whether a suspicion of the endpoint needs no members, because the detector has them.
func (d *Detector) Knows(at netip.AddrPort) bool { return len(d.tracked[at]) > 0 }

// Has reports whether an endpoint with an address is under suspicion.
func (d *Detector) Has(a netip.Addr) bool { return d.addrs[a] > 0 }

// Suspect records that the kernel noticed an endpoint. The members are the Services that have it; an endpoint that no
// Service has is ignored.
func (d *Detector) Suspect(at netip.AddrPort, reason Reason, members []Member, now time.Time) {
	if !d.Knows(at) && (reason != Refusing || slices.ContainsFunc(members, func(m Member) bool { return m.Refusals })) {
		for _, m := range members {
			d.track(&Suspect{Member: m, At: at, calm: true})
		}
	}
	list := d.tracked[at]
	if reason == Refusing && !slices.ContainsFunc(list, func(e *Suspect) bool { return e.Refusals }) {
		return
	}
	for _, e := range list {
		again := now.Before(e.next)
		if e.Down && reason == Refusing {
			e.Reason = reason // to clients as well: no network policy does that
		}
		if !e.calm || again && (reason != Refusing || e.doubted) {
			continue
		}
		e.begin(false, now)
		e.doubted, e.Reason = again, reason
		d.schedule(e, now)
		d.note(SuspicionBegan, e, now)
		if reason == Unanswered {
			d.Doubt(e.Word.Node, false, now)
		}
	}
}

// track begins to track an endpoint; false: there is no room.
func (d *Detector) track(e *Suspect) bool {
	if !d.room.Take(e.Service.Namespace) {
		d.Left++
		return false
	}
	of := d.services[e.Service]
	if of == nil {
		of = &suspects{endpoints: map[netip.AddrPort]*Suspect{}}
		d.services[e.Service] = of
	}
	e.due.Value = e
	of.endpoints[e.At] = e
	d.tracked[e.At] = append(d.tracked[e.At], e)
	d.addrs[e.At.Addr()]++
	return true
}

// forget ends the tracking of an endpoint.
func (d *Detector) forget(e *Suspect) {
	of, addr := d.services[e.Service], e.At.Addr()
	if delete(of.endpoints, e.At); len(of.endpoints) == 0 {
		delete(d.services, e.Service)
	}
	d.tracked[e.At] = slices.DeleteFunc(d.tracked[e.At], func(o *Suspect) bool { return o == e })
	if len(d.tracked[e.At]) == 0 {
		delete(d.tracked, e.At)
	}
	if d.addrs[addr]--; d.addrs[addr] == 0 {
		delete(d.addrs, addr)
	}
	e.due.Leave()
	e.gone = true
	d.room.Leave(e.Service.Namespace)
}

// Refresh records which endpoints under suspicion a Service has, as its EndpointSlices describe them. Others are gone. A new word
// brings an endpoint back at once in all Services of the namespace, unless it says that the endpoint is not ready: when a node has
// died, this is the word, and other Services with the same endpoint get it a little later.
func (d *Detector) Refresh(service state.Name, has map[netip.AddrPort]Member, now time.Time) {
	var own map[netip.AddrPort]*Suspect
	if of := d.services[service]; of != nil {
		own = of.endpoints
	}
	for at, e := range own {
		if _, stays := has[at]; !stays {
			d.clear(e, EndpointGone, now)
			d.forget(e)
		}
	}
	for at, m := range has {
		e := own[at]
		if e == nil {
			d.join(at, m)
			continue
		}
		before := e.Word
		if e.Member, e.StillReady = m, e.StillReady && m.Word.Ready; m.Word == before || !m.Word.Ready {
			continue
		}
		for _, o := range d.tracked[at] {
			if o.Service.Namespace == service.Namespace {
				d.clear(o, NewWord, now)
			}
		}
	}
}

// join has a Service share what other Services have found out about an endpoint.
func (d *Detector) join(at netip.AddrPort, m Member) {
	if !d.Knows(at) {
		return
	}
	e := *d.tracked[at][0]
	e.Member, e.StillReady, e.due = m, e.StillReady && m.Word.Ready, schedule.Entry[*Suspect]{}
	if d.track(&e) {
		d.schedule(&e, e.next)
		d.Changed(m.Service)
	}
}

// clear ends the suspicion of an endpoint.
func (d *Detector) clear(e *Suspect, why Kind, now time.Time) {
	e.doubted = e.doubted && !e.Down
	if e.Down || e.Falls > 0 {
		d.Changed(e.Service) // a plan may have waited for the second answer
	}
	if !e.calm {
		d.note(why, e, now)
	}
	e.begin(true, now)
	d.schedule(e, now.Add(calmTime))
}

// Restore records that an endpoint had failed before this process started. Its next question is due at once.
func (d *Detector) Restore(f *state.Failure, m Member, now time.Time) {
	if of := d.services[m.Service]; of != nil && of.endpoints[f.At] != nil {
		return
	}
	e := &Suspect{Member: m, At: f.At, Record: Restored(f, failuresToFail), fell: !f.Sure}
	if d.track(e) {
		d.schedule(e, now)
		d.Changed(m.Service)
	}
}

// Suspects returns what is known of the endpoints of a Service that are suspected or failed, sorted by address; of all Services if it
// has no name.
func (d *Detector) Suspects(of state.Name) (list []Suspect) {
	for e := range d.all {
		if !e.calm && (of == state.Name{} || of == e.Service) {
			list = append(list, *e)
		}
	}
	slices.SortFunc(list, func(a, b Suspect) int { return cmp.Or(a.At.Compare(b.At), a.Service.Compare(b.Service)) })
	return list
}

// all yields all endpoints that are tracked.
func (d *Detector) all(yield func(*Suspect) bool) {
	for _, list := range d.tracked {
		for _, e := range list {
			if !yield(e) {
				return
			}
		}
	}
}
