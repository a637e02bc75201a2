package suspicion

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// A failed endpoint is asked after firstPause, then after pauses that double up to longestPause. One that is held
	// is asked at least every heldPause, because the reason may end at any time.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	heldPause    = 4 * time.Second
	// calmTime is how long further suspicions of an endpoint that gave a good answer do not count. A client that gets
	// no answer for reasons of its own costs one question a second. The first refusal in that time counts: it is held back
	// once only, so the client that repeats its packet after a second must reach another endpoint.
	calmTime = time.Second
	// maxQuestions is how many questions are on their way.
	maxQuestions = 32
)

// Inquiry asks an endpoint, or witnesses.
type Inquiry struct {
	At netip.AddrPort
	// Witnesses: ask endpoints of other Services on other nodes than these, except the suspects, and endpoints of API servers.
	Witnesses bool
	Nodes     []string
	Suspects  map[netip.Addr]bool
	endpoint  *endpoint
}

// Due returns the questions whose time has come. The caller asks each of them and reports the end with Answered or
// Witnessed.
func (d *Detector) Due(now time.Time) (list []*Inquiry) {
	if d.witness.wanted && !d.witness.asking {
		d.witness.asking = true
		list = append(list, d.askWitnesses())
	}
	for due := d.calm.Due(now); due != nil; due = d.calm.Due(now) {
		if e := due.Value; slices.ContainsFunc(d.tracked[e.At], func(o *endpoint) bool { return o.Phase != Calm }) {
			d.schedule(e, now.Add(calmTime)) // the next suspicion is about all Services that have it
		} else {
			d.forget(e)
		}
	}
	for _, e := range d.line.Due(now) {
		list = append(list, &Inquiry{At: e.At, endpoint: e})
	}
	return list
}

// schedule sets the time of the next question to an endpoint, unless it is being asked.
func (d *Detector) schedule(e *endpoint, at time.Time) {
	switch e.next = at; e.Phase {
	case Calm:
		d.calm.Put(&e.due, at)
	case Suspected:
		d.line.Put(&e.due, e.Service.Namespace, at.Add(-longestPause)) // before the failed ones, which wait to return
	case Failed:
		d.line.Put(&e.due, e.Service.Namespace, at)
	}
}
