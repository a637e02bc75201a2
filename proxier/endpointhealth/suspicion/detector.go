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
	Jitter  func() float64   // a number from 0 to 1; it spreads questions over time
	Cost    time.Duration    // of a question, in processor time
	Rates   *schedule.Rates  // of such costs
	Changed func(state.Name) // what Failures returns of a Service
	Note    func(Note)
	// Doubt is called with the nodes that an endpoint may be on when it gave clients no answer, and again when it gives no answer
	// to the first question either (asked).
	Doubt func(nodes []string, asked bool, now time.Time)
}

// Detector decides about endpoints. Its methods may be called from one goroutine at a time. Times must not go back.
type Detector struct {
	Options
	tracker
	line    schedule.Line[*endpoint]  // those that are suspected, and those that have failed and wait to return
	calm    schedule.Queue[*endpoint] // they wait to be forgotten
	witness witness
}

// New returns a Detector that suspects nobody.
func New(o Options) *Detector {
	cost := func(*endpoint) time.Duration { return o.Cost }
	return &Detector{Options: o, tracker: newTracker(), line: schedule.NewLine(maxQuestions, o.Rates, cost)}
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
	if reason == Unanswered {
		d.Doubt(e.nodes(), false, now)
	}
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
	d.unlink(e, service)
	e.Members = slices.DeleteFunc(e.Members, func(m Member) bool { return m.Service == service })
	d.room.Leave(e.owner)
	e.owner = d.payer(e.Members)
	d.room.Add(e.owner)
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
		d.Changed(e.Members[i].Service)
	}
}

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
	case e.member(m.Service) == nil:
		d.link(e, m)
	}
	d.touch(e)
}
