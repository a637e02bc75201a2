package suspicion

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options configure a Detector.
type Options struct {
	Jitter func() float64                             // a number from 0 to 1; it spreads questions over time
	May    func(namespace string, now time.Time) bool // ask one more question
}

// Detector decides about endpoints. Its methods may be called from one goroutine at a time. Times must not go back.
type Detector struct {
	Options
	tracker
	questions *schedule.Room
	changed   map[state.Name]bool
	notes     []Note
	suspected schedule.Queue[*endpoint] // and calm endpoints
	failed    schedule.Queue[*endpoint] // they wait to return
	witness   witness
}

// New returns a Detector that suspects nobody.
func New(o Options) *Detector {
	return &Detector{
		Options: o, tracker: newTracker(), questions: schedule.NewRoom(maxQuestions, 2), changed: map[state.Name]bool{},
	}
}

// Suspect records that the kernel noticed an endpoint. The members are the Services that have it; an endpoint that no
// Service has is ignored.
func (d *Detector) Suspect(at netip.AddrPort, reason Reason, members []Member, now time.Time) {
	wanted := func(m Member) bool { return reason != Refusing || m.Refusals }
	e := d.tracked[at]
	if e != nil {
		members = e.Members
	}
	if !slices.ContainsFunc(members, wanted) {
		return
	}
	if e == nil {
		if e = d.track(at, members); e == nil {
			return
		}
	} else if e.Phase != Calm || now.Before(e.next) && (reason != Refusing || e.doubted) {
		return
	}
	e.doubted = e.Phase == Calm && now.Before(e.next)
	e.enter(Suspected, now)
	e.Reason, e.Hold = reason, None
	d.schedule(e, now)
	d.note(SuspicionBegan, e, now)
}

// Refresh records which endpoints under suspicion a Service has, as its EndpointSlices describe them. Others are gone. A new word
// brings an endpoint back at once, unless it says that the endpoint is not ready: when a node has died, this is the word, and
// other Services with the same endpoint get it a little later. If several namespaces have the endpoint, it is only asked soon: a
// tenant who writes the dead endpoint of another into his slices must not bring it back again and again.
func (d *Detector) Refresh(service state.Name, has map[netip.AddrPort]Member, now time.Time) {
	if of := d.services[service]; of != nil {
		for _, at := range slices.SortedFunc(maps.Keys(of.endpoints), netip.AddrPort.Compare) {
			if _, stays := has[at]; !stays {
				d.leave(of.endpoints[at], service, now)
			}
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(has), netip.AddrPort.Compare) {
		e := d.tracked[at]
		if e == nil {
			continue
		}
		m := e.member(service)
		if m == nil {
			if d.link(e, has[at]) {
				d.touch(e)
			}
			continue
		}
		before := m.Word
		*m = has[at]
		soon := now.Add(firstPause)
		switch {
		case m.Word == before || !m.Word.Ready:
		case !e.shared():
			d.clear(e, NewWord, now)
		case e.Phase == Failed && soon.Before(e.next):
			d.schedule(e, soon)
		}
	}
}

// leave notes that a Service does not have an endpoint any more.
func (d *Detector) leave(e *endpoint, service state.Name, now time.Time) {
	if len(e.Members) == 1 {
		d.clear(e, EndpointGone, now)
		d.forget(e)
		return
	}
	before := e.namespace()
	d.unlink(e, service)
	e.Members = slices.DeleteFunc(e.Members, func(m Member) bool { return m.Service == service })
	d.room.Leave(before)
	d.room.Add(e.namespace())
}

// clear ends the suspicion of an endpoint.
func (d *Detector) clear(e *endpoint, why Kind, now time.Time) {
	e.doubted = e.doubted && e.Phase != Failed
	if e.Phase == Failed || e.fails > 0 {
		d.touch(e) // a plan may have waited for the second answer
	}
	if e.Phase != Calm {
		d.note(why, e, now)
	}
	e.enter(Calm, now)
	e.Hold, e.reported = None, false
	d.schedule(e, now.Add(calmTime))
}

// touch has the Services of an endpoint planned again.
func (d *Detector) touch(e *endpoint) {
	for i := range e.Members {
		d.changed[e.Members[i].Service] = true
	}
}

// Changed returns the Services that have to be planned again since the last call.
func (d *Detector) Changed() []state.Name { return state.TakeNames(d.changed) }

// Restore records that an endpoint had failed before this process started. Its next question is due at once.
func (d *Detector) Restore(f *state.Failure, m Member, now time.Time) {
	e := d.tracked[f.At]
	switch {
	case e == nil:
		if e = d.track(f.At, []Member{m}); e == nil {
			return
		}
		e.enter(Failed, now)
		e.Since, e.fell, e.reported = f.Since, !f.Sure, true
		if e.Answer = probe.NoAnswer; f.Sure {
			e.Answer = probe.Refused
		}
		d.schedule(e, now)
	case e.member(m.Service) == nil && !d.link(e, m):
		return
	}
	of := d.services[m.Service]
	of.published = state.MergeFailures(append(of.published, *f))
	d.touch(e)
}
