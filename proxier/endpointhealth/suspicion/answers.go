package suspicion

import (
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
)

const (
	// failuresToFail and goodToRise are answers in a row.
	failuresToFail = 2
	goodToRise     = 2
	// stillReadyTime is when a failed endpoint that is called ready is strange: Kubernetes notices a dead node after 40
	// seconds. The next answer adds a note about it.
	stillReadyTime = time.Minute
)

// Answered records the end of a question to an endpoint. Reached reports whether the endpoint answered this node at some
// time before it came under suspicion.
func (d *Detector) Answered(q *Inquiry, a probe.Fault, reached bool, now time.Time) {
	e := q.endpoint
	if d.line.Ended(&e.due); e.gone {
		return
	}
	e.Answer = a
	switch {
	case e.Phase == Calm:
	case a == probe.NoFault:
		d.good(e, now)
	default:
		d.bad(e, reached, now)
	}
	d.schedule(e, e.next)
}

func (d *Detector) good(e *endpoint, now time.Time) {
	e.rises++
	switch {
	case e.Phase == Suspected:
		d.clear(e, SuspicionEnded, now)
	case e.rises >= goodToRise:
		d.clear(e, Recovered, now)
	default:
		e.fails, e.next = 0, now.Add(d.spread(firstPause))
	}
}

func (d *Detector) bad(e *endpoint, reached bool, now time.Time) {
	e.rises = 0
	e.fails++
	if e.Phase == Suspected {
		d.Changed(e.Service) // it counts for those that fall at once, even if it is held
		if e.Answer != probe.Refused && !d.witness.fresh(now) {
			d.witness.wanted = true // with the first bad answer, so that both questions take time together
		}
		if e.next = now; e.fails < failuresToFail {
			if e.Reason == Unanswered && (e.Answer == probe.NoAnswer || e.Answer == probe.NoRoute) {
				d.Doubt(e.Word.Node, true, now)
			}
			return
		}
		e.enter(Failed, now)
		e.pause, e.fell = 0, e.Answer != probe.Refused
	}
	d.setHold(e, d.holdOf(e, reached, now), now)
	if !e.told && now.Sub(e.Since) >= stillReadyTime && e.Word.Ready {
		e.told = true
		d.note(StillReady, e, now)
	}
	e.pause = min(max(firstPause, 2*e.pause), longestPause)
	if e.Hold != None {
		e.pause = min(e.pause, heldPause)
	}
	e.next = now.Add(d.spread(e.pause))
}

// spread shortens a pause by up to a fifth, so that nodes and endpoints do not ask at the same time.
func (d *Detector) spread(pause time.Duration) time.Duration {
	return pause - time.Duration(d.Jitter()*float64(pause)/5)
}

// holdOf returns why a failed endpoint is not to be ejected.
func (d *Detector) holdOf(e *endpoint, reached bool, now time.Time) Hold {
	switch {
	case e.Hold == None && e.reported:
		return None // it was ejected; only good answers bring it back
	case e.Answer == probe.HostAnswers:
		return HostAlive
	case !reached:
		return NeverReached
	case e.Answer == probe.Refused:
		return None // who resets connections can be reached
	}
	return d.witness.hold(e, now)
}

func (d *Detector) setHold(e *endpoint, h Hold, now time.Time) {
	before := e.Hold
	e.Hold = h
	if h == Asking {
		d.witness.wanted = true
		return
	}
	if !e.reported || before != h {
		e.reported = true
		d.note(Fell, e, now)
		d.Changed(e.Service)
	}
}
