package checks

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
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

// Doubts are where endpoints of a namespace gave a bad answer. Its own endpoints there are no witnesses. Those of other namespaces are,
// because it may write any address, and name any node.
type Doubts struct {
	Nodes map[string]bool
	Addrs map[netip.Addr]bool
}

// Due returns the questions whose time has come. The caller asks each of them and reports the end with Answered or
// Witnessed.
func (d *Detector) Due(now time.Time) (list []Question) {
	if d.witness.wanted && !d.witness.asking {
		d.witness.asking = true
		list = append(list, d.askWitnesses())
	}
	if now.Sub(d.swept) >= calmTime {
		d.swept = now
		d.forgetCalm(now)
	}
	for _, e := range d.line.Due(now) {
		list = append(list, Question{Question: probe.Question{Target: probe.Target{Protocol: state.TCP, At: e.At}}, Suspect: e})
	}
	return list
}

// forgetCalm forgets the endpoints that are calm in all Services, because the next suspicion is about all that have it.
func (d *Detector) forgetCalm(now time.Time) {
	for _, list := range d.tracked {
		if !slices.ContainsFunc(list, func(e *Suspect) bool { return !e.calm || e.due.Asked() || now.Before(e.next) }) {
			for _, e := range slices.Clone(list) {
				d.forget(e)
			}
		}
	}
}

// schedule sets the time of the next question to an endpoint, unless it is being asked. A calm one is not asked.
func (d *Detector) schedule(e *Suspect, at time.Time) {
	switch e.next = at; {
	case e.calm:
		e.due.Leave()
	case e.Down:
		d.line.Put(&e.due, e.Service.Namespace, at)
	default:
		d.line.Put(&e.due, e.Service.Namespace, at.Add(-longestPause)) // before the failed ones, which wait to return
	}
}

const (
	// failuresToFail and goodToRise are answers in a row.
	failuresToFail = 2
	goodToRise     = 2
	// stillReadyTime is when a failed endpoint that is called ready is strange: Kubernetes notices a dead node after 40
	// seconds. The next answer adds a note about it.
	stillReadyTime = time.Minute
)

// Answered records the end of a question to an endpoint. Reached reports whether no network policy keeps this node away from it, as it
// answered before.
func (d *Detector) Answered(q Question, a probe.Fault, reached bool, now time.Time) {
	e := q.Suspect
	if d.line.Ended(&e.due); e.gone {
		return
	}
	if a == probe.OtherFault && !e.calm { // it decides nothing
		e.next = now.Add(d.spread(firstPause))
		d.line.Put(&e.due, e.Service.Namespace, e.next)
		return
	}
	if !e.Down && e.Falls > 0 {
		d.Changed(e.Service) // a plan may have waited for this answer
	}
	turns := !e.calm && e.Hear(probe.Answer{Fault: a}, goodToRise, failuresToFail)
	switch e.Fault = a; {
	case e.calm:
	case a != probe.NoFault:
		d.bad(e, turns, reached, now)
	case turns:
		d.clear(e, Recovered, now)
	case !e.Down:
		d.clear(e, SuspicionEnded, now)
	default:
		e.next = now.Add(d.spread(firstPause))
	}
	d.schedule(e, e.next)
}

func (d *Detector) bad(e *Suspect, turns, reached bool, now time.Time) {
	if !e.Down {
		d.Changed(e.Service) // it counts for those that fall at once, even if it is held
		if e.Fault != probe.Refused && !d.witness.fresh(now) {
			d.witness.wanted = true // with the first bad answer, so that both questions take time together
		}
		if e.next = now; !turns {
			if e.Reason == Unanswered && (e.Fault == probe.NoAnswer || e.Fault == probe.NoRoute) {
				d.Doubt(e.Word.Node, true, now)
			}
			return
		}
		e.Down, e.Since, e.pause, e.fell = true, now, 0, e.Fault != probe.Refused
	}
	if e.fell && e.Fault == probe.Refused { // its host is back, and its program is not: that is sure
		e.fell = false
		d.Changed(e.Service)
	}
	d.setHold(e, d.holdOf(e, reached, now), now)
	if !e.StillReady && now.Sub(e.Since) >= stillReadyTime && e.Word.Ready {
		e.StillReady = true
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
func (d *Detector) holdOf(e *Suspect, reached bool, now time.Time) Hold {
	switch {
	case e.said == None:
		return None // it was ejected; only good answers bring it back
	case e.Fault == probe.HostAnswers:
		return HostAlive
	case !reached:
		return NeverReached
	case e.Fault == probe.Refused:
		return None // who resets connections can be reached
	}
	return d.witness.hold(e, now)
}

func (d *Detector) setHold(e *Suspect, h Hold, now time.Time) {
	e.Hold = h
	if h == Asking {
		d.witness.wanted = true
		return
	}
	if e.said != h {
		e.said = h
		d.note(Fell, e, now)
		d.Changed(e.Service)
	}
}

// Witnesses is what API servers and endpoints on other nodes answered.
type Witnesses uint8

// The answers of the witnesses.
const (
	NoWitness  Witnesses = iota // there is nobody to ask whose silence would mean anything
	SomeAnswer                  // the network of this node works
	AllSilent                   // this node has lost its network
)

// freshWitness is how long an answer of the witnesses counts.
const freshWitness = time.Second

// witness is what the detector knows of the network of this node.
type witness struct {
	wanted, asking bool
	latest         Witnesses
	at             time.Time // of the latest answer
}

func (w *witness) fresh(now time.Time) bool { return !w.at.IsZero() && now.Sub(w.at) < freshWitness }

// hold returns why an endpoint is not ejected, by what the witnesses say.
func (w *witness) hold(e *Suspect, now time.Time) Hold {
	switch {
	case !w.fresh(now):
		return Asking
	case w.latest == AllSilent, w.latest == NoWitness && e.Fault == probe.NoRoute:
		return Uplink
	}
	return None
}

// Witnessed records what the witnesses answered.
func (d *Detector) Witnessed(w Witnesses, now time.Time) {
	before := d.witness.latest
	d.witness = witness{latest: w, at: now}
	for e := range d.all {
		if e.Down && e.Hold == Asking {
			d.setHold(e, d.witness.hold(e, now), now)
		}
	}
	switch {
	case before == w:
	case w == AllSilent:
		d.Note(Note{Kind: NetworkLost, At: now})
	case before == AllSilent:
		d.Note(Note{Kind: NetworkBack, At: now})
	}
}

// askWitnesses asks who shows whether this node has its network.
func (d *Detector) askWitnesses() Question {
	q := Question{Doubts: map[string]Doubts{}}
	for e := range d.all {
		if !e.Down && e.Falls == 0 {
			continue // anybody can raise a suspicion
		}
		of, known := q.Doubts[e.Service.Namespace]
		if !known {
			of = Doubts{map[string]bool{}, map[netip.Addr]bool{}}
			q.Doubts[e.Service.Namespace] = of
		}
		if of.Addrs[e.At.Addr()] = true; e.Word.Node != "" {
			of.Nodes[e.Word.Node] = true
		}
	}
	return q
}
