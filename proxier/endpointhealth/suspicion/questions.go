package suspicion

import (
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
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
	// maxQuestions is how many questions are on their way. One namespace can have half of what others leave.
	maxQuestions = 32
	// crowded is when an endpoint is tried again whose namespaces ask as much as they can.
	crowded = 100 * time.Millisecond
)

// Inquiry asks an endpoint, or witnesses.
type Inquiry struct {
	At netip.AddrPort
	// Witnesses: ask endpoints of other Services on other nodes than these, except the suspects, and endpoints of API servers.
	Witnesses bool
	Nodes     []string
	Suspects  map[netip.Addr]bool
	payer     string // the namespace that asks
}

// Due returns the questions whose time has come. The caller asks each of them and reports the end with Answered or
// Witnessed. Suspected endpoints come before failed ones, which wait to return.
func (d *Detector) Due(now time.Time) (list []*Inquiry) {
	if d.witness.wanted && !d.witness.asking {
		d.witness.asking = true
		list = append(list, d.askWitnesses())
	}
	for _, q := range []*schedule.Queue[*endpoint]{&d.suspected, &d.failed} {
		for q.Due(now) {
			e, _ := q.First()
			if e.Phase == Calm {
				d.forget(e)
				continue
			}
			if all, _ := d.questions.Used(""); all >= maxQuestions {
				return list
			}
			payer, some := d.payer(e, now)
			if !some {
				d.schedule(e, now.Add(crowded))
				continue
			}
			d.questions.Take(payer)
			e.asking = &Inquiry{At: e.At, payer: payer}
			e.due.Leave()
			list = append(list, e.asking)
		}
	}
	return list
}

// payer finds a namespace that can ask an endpoint that it has.
func (d *Detector) payer(e *endpoint, now time.Time) (namespace string, some bool) {
	for i := range e.Members {
		n := e.Members[i].Service.Namespace
		if tried := i > 0 && n == namespace; !tried && !d.questions.Full(n) && d.May(n, now) {
			return n, true
		}
		namespace = n
	}
	return "", false
}

// schedule sets the time of the next question to an endpoint. One that is being asked is in no queue.
func (d *Detector) schedule(e *endpoint, at time.Time) {
	e.next = at
	switch {
	case e.asking != nil:
	case e.Phase == Failed:
		d.failed.Put(&e.due, at)
	default:
		d.suspected.Put(&e.due, at)
	}
}

// Unanswered returns the nodes that a suspected endpoint may be on if the kernel noticed it because it gave no answer; none: there
// is no reason to doubt a node.
func (d *Detector) Unanswered(at netip.AddrPort) []string {
	if e := d.tracked[at]; e != nil && e.Phase == Suspected && e.Reason == Unanswered {
		return e.nodes()
	}
	return nil
}

// Doubts is Unanswered if the endpoint gives no answer to the first question either. Call it before Answered.
func (d *Detector) Doubts(at netip.AddrPort, a probe.Fault) []string {
	if e := d.tracked[at]; e == nil || e.fails > 0 || a != probe.NoAnswer && a != probe.NoRoute {
		return nil
	}
	return d.Unanswered(at)
}
