package endpointhealth

import (
	"cmp"
	"container/heap"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	// failuresToFail and goodToRise are answers in a row.
	failuresToFail = 2
	goodToRise     = 2
	// A failed endpoint is asked after firstPause, then after pauses that double up to longestPause. One that is held
	// is asked at least every heldPause, because the reason may end at any time.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	heldPause    = 4 * time.Second
	// stillReadyTime is when a failed endpoint that is called ready is strange: Kubernetes notices a dead node after 40
	// seconds. The next answer adds a note about it.
	stillReadyTime = time.Minute
	// calmTime is how long further suspicions of an endpoint that gave a good answer do not count. A client that gets
	// no answer for reasons of its own costs one question a second.
	calmTime = time.Second
	// maxTracked is how many endpoints can be under suspicion. One namespace can have a quarter of what others leave.
	maxTracked  = 4096
	maxOfTenant = maxTracked / 4
	// maxQuestions is how many questions are on their way. One namespace can have half of them.
	maxQuestions         = 32
	maxQuestionsOfTenant = maxQuestions / 2
	// freshWitness is how long an answer of the witnesses counts.
	freshWitness = time.Second
	// crowded is when an endpoint is tried again whose namespace asks as much as it can.
	crowded = 100 * time.Millisecond
)

// detector decides about endpoints. Its methods may be called from one goroutine at a time. Times must not go back.
type detector struct {
	jitter    func() float64 // a number from 0 to 1; it spreads questions over time
	tracked   map[netip.AddrPort]*endpoint
	services  map[state.Name]map[netip.AddrPort]*endpoint // the tracked endpoints of each Service
	ofTenant  map[string]int                              // how many endpoints a namespace has in tracked
	published map[state.Name]state.Health                 // what failures returned
	doubtful  map[state.Name]bool                         // no silent endpoint is added to it until others have answered
	fallen    map[state.Name]bool                         // too many endpoints fell at once
	questions map[string]int                              // on their way, by namespace
	asked     int                                         // the sum of questions
	changed   map[state.Name]bool
	notes     []Note
	suspects  suspectQueue // suspected and calm endpoints
	fallenOut suspectQueue // failed ones, which wait to return
	witness   witness
	left      int                                              // suspicions that found no room
	may       func(namespace string, now time.Time) (yes bool) // ask one more question
}

// newDetector returns a detector that suspects nobody.
func newDetector(jitter func() float64) *detector {
	return &detector{
		jitter: jitter, tracked: map[netip.AddrPort]*endpoint{}, services: map[state.Name]map[netip.AddrPort]*endpoint{},
		ofTenant: map[string]int{}, published: map[state.Name]state.Health{}, doubtful: map[state.Name]bool{},
		fallen: map[state.Name]bool{}, questions: map[string]int{}, changed: map[state.Name]bool{}, may: always,
	}
}

// Knows reports whether a suspicion of the endpoint needs no members, because the detector has them.
func (d *detector) Knows(at netip.AddrPort) bool { return d.tracked[at] != nil }

// Has reports whether endpoints of a Service are under suspicion.
func (d *detector) Has(service state.Name) bool { return len(d.services[service]) > 0 }

// Suspect records that the kernel noticed an endpoint. The members are the Services that have it; an endpoint that no
// Service has is ignored.
func (d *detector) Suspect(at netip.AddrPort, reason Reason, members []Member, now time.Time) {
	wanted := func(m Member) bool { return reason != Refusing || m.Refusals }
	e := d.tracked[at]
	if e != nil {
		members = e.members
	}
	if !slices.ContainsFunc(members, wanted) {
		return
	}
	if e == nil {
		if e = d.track(at, members); e == nil {
			return
		}
	} else if e.phase != calm || now.Before(e.next) {
		return
	}
	e.enter(suspected, now)
	e.reason, e.next, e.hold = reason, now, None
	d.schedule(e)
	d.note(SuspicionBegan, e, now)
}

// track begins to track an endpoint; nil: there is no room, or no Service has it. It counts for the namespace that has the
// fewest: a tenant who writes the endpoints of another into his slices takes none of his room.
func (d *detector) track(at netip.AddrPort, members []Member) *endpoint {
	if len(members) == 0 {
		return nil
	}
	e := &endpoint{at: at, members: slices.Clone(members)}
	slices.SortStableFunc(e.members, func(a, b Member) int {
		return cmp.Compare(d.ofTenant[a.Service.Namespace], d.ofTenant[b.Service.Namespace])
	})
	if own := d.ofTenant[e.namespace()]; own >= shareOf(maxTracked, len(d.tracked)-own, maxTracked/maxOfTenant) {
		d.left++
		return nil
	}
	d.tracked[at] = e
	d.ofTenant[e.namespace()]++
	d.link(e)
	return e
}

func (d *detector) link(e *endpoint) {
	for _, m := range e.members {
		if d.services[m.Service] == nil {
			d.services[m.Service] = map[netip.AddrPort]*endpoint{}
		}
		d.services[m.Service][e.at] = e
	}
}

// misses reports whether an endpoint is under suspicion, and the detector does not know that a Service has it.
func (d *detector) misses(at netip.AddrPort, service state.Name) bool {
	e := d.tracked[at]
	return e != nil && e.member(service) == nil
}

// join records that one more Service has an endpoint.
func (d *detector) join(at netip.AddrPort, m Member) {
	e := d.tracked[at]
	e.members = append(e.members, m)
	d.link(e)
	d.touch(e)
}

func (d *detector) unlink(e *endpoint) {
	for _, m := range e.members {
		delete(d.services[m.Service], e.at)
		if len(d.services[m.Service]) == 0 {
			delete(d.services, m.Service)
			delete(d.doubtful, m.Service)
			delete(d.fallen, m.Service)
			delete(d.published, m.Service)
		}
	}
}

func (d *detector) forget(e *endpoint) {
	d.unlink(e)
	delete(d.tracked, e.at)
	if e.queue != nil {
		heap.Remove(e.queue, e.index)
	}
	if d.ofTenant[e.namespace()]--; d.ofTenant[e.namespace()] == 0 {
		delete(d.ofTenant, e.namespace())
	}
	if e.asking {
		d.answeredBy(e.payer)
	}
}

// Refresh records the conditions that the EndpointSlices of a Service have for its endpoints under suspicion; ok is false for
// an endpoint that is gone. A new word brings an endpoint back at once, unless it says that the endpoint is not ready:
// when a node has died, this is the word, and other Services with the same endpoint get it a little later.
func (d *detector) Refresh(service state.Name, word func(netip.AddrPort) (w Word, nodes int, ok bool), now time.Time) {
	for _, at := range slices.SortedFunc(maps.Keys(d.services[service]), netip.AddrPort.Compare) {
		e := d.tracked[at]
		w, nodes, ok := word(at)
		m := e.member(service)
		switch {
		case !ok:
			d.leave(e, service, now)
		case w != m.Word:
			m.Word, m.Nodes = w, nodes
			if w.Ready {
				d.clear(e, NewWord, now)
			}
		default:
			m.Nodes = nodes
		}
	}
}

// leave notes that a Service does not have an endpoint any more.
func (d *detector) leave(e *endpoint, service state.Name, now time.Time) {
	if len(e.members) == 1 {
		d.clear(e, EndpointGone, now)
		d.forget(e)
		return
	}
	asking := e.asking
	d.forget(e)
	e.members = slices.DeleteFunc(e.members, func(m Member) bool { return m.Service == service })
	d.tracked[e.at] = e
	d.ofTenant[e.namespace()]++
	d.link(e)
	if asking {
		d.ask(e)
	} else {
		d.schedule(e)
	}
}

// clear ends the suspicion of an endpoint.
func (d *detector) clear(e *endpoint, why Kind, now time.Time) {
	if e.phase == failed || e.fails > 0 {
		d.touch(e) // a plan may have waited for the second answer
	}
	if e.phase != calm {
		d.note(why, e, now)
	}
	e.enter(calm, now)
	e.hold, e.reported, e.next = None, false, now.Add(calmTime)
	d.schedule(e)
}

// touch has the Services of an endpoint planned again.
func (d *detector) touch(e *endpoint) {
	for _, m := range e.members {
		d.changed[m.Service] = true
	}
}

// Changed returns the Services that have to be planned again, sorted, and forgets them.
func (d *detector) Changed() []state.Name {
	if len(d.changed) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(d.changed), state.Name.Compare)
	d.changed = map[state.Name]bool{}
	return names
}

// Addresses are the addresses of all endpoints under suspicion.
func (d *detector) Addresses() map[netip.Addr]bool {
	out := make(map[netip.Addr]bool, len(d.tracked))
	for at := range d.tracked {
		out[at.Addr()] = true
	}
	return out
}

// inquiry asks an endpoint, or witnesses.
type inquiry struct {
	At netip.AddrPort
	// Witnesses: ask endpoints of other Services on other nodes than these, and endpoints of API servers.
	Witnesses bool
	Nodes     []string
}

// Due returns the questions whose time has come. The caller asks each of them and reports the end with Answered or
// Witnessed. Suspected endpoints come before failed ones, which wait to return.
func (d *detector) Due(now time.Time) (list []inquiry) {
	if d.witness.wanted && !d.witness.asking {
		d.witness.asking = true
		list = append(list, inquiry{Witnesses: true, Nodes: d.failingNodes()})
	}
	list = d.due(&d.suspects, list, now)
	return d.due(&d.fallenOut, list, now)
}

func (d *detector) ask(e *endpoint) {
	e.asking = true
	d.questions[e.payer]++
	d.asked++
	d.schedule(e)
}

func (d *detector) answeredBy(namespace string) {
	d.asked--
	if d.questions[namespace]--; d.questions[namespace] == 0 {
		delete(d.questions, namespace)
	}
}

// Idle reports whether no endpoint is under suspicion, so that Due has nothing to say.
func (d *detector) Idle() bool { return len(d.tracked) == 0 }

// Unanswered returns the node of a suspected endpoint that the kernel noticed because it gave no answer; "": there is no
// reason to doubt a node.
func (d *detector) Unanswered(at netip.AddrPort) (node string) {
	if e := d.tracked[at]; e != nil && e.phase == suspected && e.reason == Unanswered {
		return e.node()
	}
	return ""
}

// Doubts is Unanswered if the endpoint gives no answer to the first question either. Call it before Answered.
func (d *detector) Doubts(at netip.AddrPort, a Fault) (node string) {
	if e := d.tracked[at]; e == nil || e.fails > 0 || a != NoAnswer && a != NoRoute {
		return ""
	}
	return d.Unanswered(at)
}

// Answered records the end of a question to an endpoint. Reached reports whether the endpoint answered this node at some
// time before it came under suspicion.
func (d *detector) Answered(at netip.AddrPort, a Fault, reached bool, now time.Time) {
	e := d.tracked[at]
	if e == nil || !e.asking {
		return // it is gone
	}
	e.asking, e.latest = false, a
	d.answeredBy(e.payer)
	switch {
	case e.phase == calm:
	case a == NoFault:
		d.good(e, now)
	default:
		d.bad(e, reached, now)
	}
	d.schedule(e)
}

func (d *detector) good(e *endpoint, now time.Time) {
	if e.phase == suspected {
		d.clear(e, SuspicionEnded, now)
		return
	}
	e.fails = 0
	e.rises++
	if e.rises >= goodToRise {
		d.clear(e, Recovered, now)
		return
	}
	e.next = now.Add(d.spread(firstPause))
}

func (d *detector) bad(e *endpoint, reached bool, now time.Time) {
	e.rises = 0
	e.fails++
	if e.phase == suspected {
		d.wantWitnesses(e, now)
		if e.next = now; e.fails < failuresToFail {
			return
		}
		e.enter(failed, now)
		e.pause, e.fell = 0, e.latest != Refused
		d.touch(e) // it counts for those that fall at once, even if it is held
	}
	d.setHold(e, d.holdOf(e, reached, now), now)
	if !e.stillReady && now.Sub(e.since) >= stillReadyTime && e.ready() {
		e.stillReady = true
		d.note(StillReady, e, now)
	}
	e.pause = min(max(firstPause, 2*e.pause), longestPause)
	if e.hold != None {
		e.pause = min(e.pause, heldPause)
	}
	e.next = now.Add(d.spread(e.pause))
}

// spread shortens a pause by up to a fifth, so that nodes and endpoints do not ask at the same time.
func (d *detector) spread(pause time.Duration) time.Duration {
	return pause - time.Duration(d.jitter()*float64(pause)/5)
}

// holdOf returns why a failed endpoint is not to be ejected.
func (d *detector) holdOf(e *endpoint, reached bool, now time.Time) Hold {
	switch {
	case e.hold == None && e.reported:
		return None // it was ejected; only good answers bring it back
	case e.latest == HostAnswers:
		return HostAlive
	case !reached:
		return NeverReached
	case e.latest == Refused:
		return None // who resets connections can be reached
	}
	return d.witness.hold(e, now)
}

func (d *detector) setHold(e *endpoint, h Hold, now time.Time) {
	before := e.hold
	e.hold = h
	if h == Asking {
		d.witness.wanted = true
		return
	}
	if !e.reported || before != h {
		e.reported = true
		d.note(Failed, e, now)
		d.touch(e)
	}
}

// schedule puts an endpoint into the right place of the right queue, after its phase or the time of its next question
// has changed. One that is being asked is in no queue.
func (d *detector) schedule(e *endpoint) {
	want := &d.suspects
	if e.phase == failed {
		want = &d.fallenOut
	}
	if e.queue != nil && (e.asking || e.queue != want) {
		heap.Remove(e.queue, e.index)
	}
	switch {
	case e.asking:
	case e.queue == nil:
		heap.Push(want, e)
	default:
		heap.Fix(want, e.index)
	}
}

// paid finds a namespace that can ask an endpoint that it has.
func (d *detector) paid(e *endpoint, now time.Time) bool {
	for i := range e.members {
		e.payer = e.members[i].Service.Namespace
		if tried := i > 0 && e.payer == e.members[i-1].Service.Namespace; !tried && d.questions[e.payer] < maxQuestionsOfTenant && d.may(e.payer, now) {
			return true
		}
	}
	return false
}

// due returns the questions to the endpoints of a queue whose time has come.
func (d *detector) due(q *suspectQueue, list []inquiry, now time.Time) []inquiry {
	for d.asked < maxQuestions && len(*q) > 0 && !now.Before((*q)[0].next) {
		switch e := (*q)[0]; {
		case e.phase == calm:
			d.forget(e)
		case !d.paid(e, now):
			e.next = now.Add(crowded)
			d.schedule(e)
		default:
			d.ask(e)
			list = append(list, inquiry{At: e.at})
		}
	}
	return list
}

// failures returns the endpoints of a Service that have failed and are not held. Silent ones are left out of it while too
// many of the Service fell at once; while that is in doubt, only those that it had before are in it.
func (d *detector) failures(service state.Name, now time.Time) (list state.Health) {
	if !d.Has(service) {
		return nil
	}
	mass, maybe := d.mass(service)
	if mass && !d.fallen[service] {
		d.notes = append(d.notes, Note{Kind: FellAtOnce, At: now, Service: service})
	}
	setIf(d.fallen, service, mass)
	setIf(d.doubtful, service, maybe && !mass)
	before := d.published[service]
	for at, e := range d.services[service] {
		if e.phase != failed || e.hold != None {
			continue
		}
		f := state.Failure{Protocol: state.TCP, At: at, Since: e.since, Sure: !e.fell}
		_, had := slices.BinarySearchFunc(before, f, state.Failure.Compare)
		if f.Sure || !mass && (!maybe || had) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, state.Failure.Compare)
	if d.published[service] = list; len(list) == 0 {
		delete(d.published, service)
	}
	return list
}

func setIf(set map[state.Name]bool, name state.Name, in bool) {
	if delete(set, name); in {
		set[name] = true
	}
}

// restore records that an endpoint had failed before this process started. Its next question is due at once.
func (d *detector) restore(f *state.Failure, m Member, now time.Time) {
	e := d.tracked[f.At]
	switch {
	case e == nil:
		if e = d.track(f.At, []Member{m}); e == nil {
			return
		}
		e.enter(failed, now)
		e.since, e.fell, e.reported, e.next = f.Since, !f.Sure, true, now
		if e.latest = NoAnswer; f.Sure {
			e.latest = Refused
		}
		d.schedule(e)
	case e.member(m.Service) == nil:
		e.members = append(e.members, m)
		d.link(e)
	}
	d.published[m.Service] = merged(append(d.published[m.Service], *f))
	d.touch(e)
}
