package checks

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	// rise and fall are answers in a row.
	rise, fall = 2, 2
	// A failed endpoint is asked after firstPause, then after pauses that double up to longestPause. One that is held
	// is asked at least every heldPause, because the reason may end at any time.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	heldPause    = 4 * time.Second
	// calmTime is how long further suspicions of an endpoint that gave a good answer do not count. A client that gets
	// no answer for reasons of its own costs one question a second. The first refusal in that time counts: it is held back
	// once only, so the client that repeats its packet after a second must reach another endpoint.
	calmTime = time.Second
	// stillReadyTime is when a failed endpoint that is called ready is strange: Kubernetes notices a dead node after 40
	// seconds. The next answer adds a note about it.
	stillReadyTime = time.Minute
)

// Reason is what the kernel noticed.
type Reason uint8

// The reasons.
const (
	Unanswered Reason = iota // clients repeat their first packets
	Refusing                 // the endpoint resets new connections
	SameNode                 // another endpoint of its node did not answer
)

func (r Reason) String() string {
	return [...]string{"unanswered", "refusing", "same node"}[r]
}

// Word is what the EndpointSlice of a Service says about an endpoint.
type Word struct {
	Node                        string
	Ready, Serving, Terminating bool
}

// Member is an endpoint as one Service has it.
type Member struct {
	Service  state.Name
	Word     Word
	Refusals bool // the Service wants refusals to count
	Nodes    int  // on how many nodes, without this one, the Service has endpoints
}

// Suspect is what is known of an endpoint of a Service that is under suspicion.
type Suspect struct {
	Check // Since is when it failed, or came under suspicion; Fault is of the latest answer, also of a good one
	Member
	At         netip.AddrPort
	Reason     Reason
	Hold       Hold // why it is not to be ejected although it failed; never that of a plan
	StillReady bool // it has failed for stillReadyTime, and its EndpointSlice calls it ready
	said       Hold // with which hold a note said that it failed; Asking: none did

	calm    bool          // a good answer has just cleared it, and it rests; from next on suspicions count
	doubted bool          // it came under suspicion while it was calm
	fell    bool          // it failed without a word, as an endpoint of a dead node does
	pause   time.Duration // between questions to a failed one
}

// begin has its answers count anew.
func (s *Suspect) begin(calm bool, now time.Time) {
	s.calm, s.StillReady, s.Hold, s.said = calm, false, None, Asking
	s.Record = Record{Passed: true, Since: now, Fault: s.Fault}
}

// Detector begins and ends suspicions, and says what bad answers to them mean. Each Service asks its own endpoints: what a tenant
// writes about the endpoint of another changes nothing for the other.
type Detector struct {
	*Checker
	Left int // suspicions that found no room; the caller takes them away

	services map[state.Name]*suspects
	tracked  map[netip.AddrPort][]*Suspect
	addrs    map[netip.Addr]int // how many of the tracked endpoints have an address
	swept    time.Time          // when calm ones were forgotten
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
	d := &Detector{Checker: New(o), services: map[state.Name]*suspects{}, tracked: map[netip.AddrPort][]*Suspect{}, addrs: map[netip.Addr]int{}}
	d.Checker.judge = d.judge
	return d
}

// Idle reports whether no endpoint is under suspicion.
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
	if reason == Refusing && !slices.ContainsFunc(list, func(s *Suspect) bool { return s.Refusals }) {
		return
	}
	for _, s := range list {
		again := now.Before(s.next)
		if s.Down && reason == Refusing {
			s.Reason = reason // to clients as well: no network policy does that
		}
		if !s.calm || again && (reason != Refusing || s.doubted) {
			continue
		}
		s.begin(false, now)
		s.doubted, s.Reason = again, reason
		s.next = now.Add(-longestPause) // before the failed ones, which wait to return
		d.wait(s.of)
		d.note(SuspicionBegan, s, now)
		if reason == Unanswered {
			d.Doubt(s.Word.Node, false, now)
		}
	}
}

// track begins to track an endpoint; false: there is no room.
func (d *Detector) track(s *Suspect) bool {
	s.asks, s.suspect = state.HealthCheck{Rise: rise, Fall: fall}, s
	if !d.add(&s.Check, place{s.Service.Namespace, probe.Target{Protocol: state.TCP, At: s.At}, Suspicion}) {
		d.Left++
		return false
	}
	of := d.services[s.Service]
	if of == nil {
		of = &suspects{endpoints: map[netip.AddrPort]*Suspect{}}
		d.services[s.Service] = of
	}
	s.users[s.Service], of.endpoints[s.At] = struct{}{}, s
	d.tracked[s.At] = append(d.tracked[s.At], s)
	d.addrs[s.At.Addr()]++
	return true
}

// forget ends the tracking of an endpoint.
func (d *Detector) forget(s *Suspect) {
	of, addr := d.services[s.Service], s.At.Addr()
	if delete(of.endpoints, s.At); len(of.endpoints) == 0 {
		delete(d.services, s.Service)
	}
	d.tracked[s.At] = slices.DeleteFunc(d.tracked[s.At], func(o *Suspect) bool { return o == s })
	if len(d.tracked[s.At]) == 0 {
		delete(d.tracked, s.At)
	}
	if d.addrs[addr]--; d.addrs[addr] == 0 {
		delete(d.addrs, addr)
	}
	d.leave(s.Service, &s.Check)
}

// Refresh records which endpoints under suspicion a Service has, as its EndpointSlices describe them. Others are gone. A new word
// brings an endpoint back at once in all Services of the namespace, unless it says that the endpoint is not ready: when a node has
// died, this is the word, and other Services with the same endpoint get it a little later.
func (d *Detector) Refresh(service state.Name, has map[netip.AddrPort]Member, now time.Time) {
	var own map[netip.AddrPort]*Suspect
	if of := d.services[service]; of != nil {
		own = of.endpoints
	}
	for at, s := range own {
		if _, stays := has[at]; !stays {
			d.clear(s, EndpointGone, now)
			d.forget(s)
		}
	}
	for at, m := range has {
		s := own[at]
		if s == nil {
			d.join(at, m)
			continue
		}
		before := s.Word
		if s.Member, s.StillReady = m, s.StillReady && m.Word.Ready; m.Word == before || !m.Word.Ready {
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
	s := *d.tracked[at][0]
	if s.Member, s.StillReady = m, s.StillReady && m.Word.Ready; d.track(&s) {
		d.touch(&s.Check)
	}
}

// Recall records that an endpoint had failed before this process started. Its next question is due at once.
func (d *Detector) Recall(f *state.Failure, m Member, now time.Time) {
	if of := d.services[m.Service]; of != nil && of.endpoints[f.At] != nil {
		return
	}
	if s := (&Suspect{Member: m, At: f.At, fell: !f.Sure}); d.track(s) {
		d.Restore(&s.Check, f, now)
	}
}

// clear ends the suspicion of an endpoint.
func (d *Detector) clear(s *Suspect, why Kind, now time.Time) {
	s.doubted = s.doubted && !s.Down
	if s.Down || s.Falls > 0 {
		d.touch(&s.Check) // a plan may have waited for the second answer
	}
	if !s.calm {
		d.note(why, s, now)
	}
	s.begin(true, now)
	s.next = now.Add(calmTime)
	d.wait(s.of)
}

// Due returns the questions whose time has come. The caller asks each of them, and reports the end with Answered or Witnessed.
func (d *Detector) Due(now time.Time) (list []Question) {
	if d.witness.wanted && !d.witness.asking {
		d.witness.asking = true
		list = append(list, d.askWitnesses())
	}
	if now.Sub(d.swept) >= calmTime {
		d.swept = now
		d.forgetCalm(now)
	}
	return append(list, d.Checker.Due(now)...)
}

// forgetCalm forgets the endpoints that are calm in all Services, because the next suspicion is about all that have it.
func (d *Detector) forgetCalm(now time.Time) {
	for _, list := range d.tracked {
		if !slices.ContainsFunc(list, func(s *Suspect) bool { return !s.calm || s.of.due.Asked() || now.Before(s.next) }) {
			for _, s := range slices.Clone(list) {
				d.forget(s)
			}
		}
	}
}

// judge decides what an answer means for a suspicion. Doubted: the one before was the first bad one.
func (d *Detector) judge(s *Suspect, doubted, turns bool, now time.Time) {
	if doubted {
		d.touch(&s.Check) // a plan may have waited for this answer
	}
	if look := d.endpoints[place{s.Service.Namespace, s.of.target, Look}]; look != nil && s.Fault == probe.NoFault {
		look.checks[0].Passed = true
	}
	switch {
	case s.Fault != probe.NoFault:
		d.bad(s, turns, now)
	case turns:
		d.clear(s, Recovered, now)
	case !s.Down:
		d.clear(s, SuspicionEnded, now)
	default:
		s.next = now.Add(d.spread(firstPause))
	}
}

func (d *Detector) bad(s *Suspect, turns bool, now time.Time) {
	if !s.Down {
		d.touch(&s.Check) // it counts for those that fall at once, even if it is held
		if s.Fault != probe.Refused && !d.witness.fresh(now) {
			d.witness.wanted = true // with the first bad answer, so that both questions take time together
		}
		if !turns {
			if s.next = now.Add(-longestPause); s.Reason == Unanswered && (s.Fault == probe.NoAnswer || s.Fault == probe.NoRoute) {
				d.Doubt(s.Word.Node, true, now)
			}
			return
		}
		s.Down, s.Since, s.pause, s.fell = true, now, 0, s.Fault != probe.Refused
	}
	if s.fell && s.Fault == probe.Refused { // its host is back, and its program is not: that is sure
		s.fell = false
		d.touch(&s.Check)
	}
	d.setHold(s, d.holdOf(s, now), now)
	if !s.StillReady && now.Sub(s.Since) >= stillReadyTime && s.Word.Ready {
		s.StillReady = true
		d.note(StillReady, s, now)
	}
	s.pause = min(max(firstPause, 2*s.pause), longestPause)
	if s.Hold != None {
		s.pause = min(s.pause, heldPause)
	}
	s.next = now.Add(d.spread(s.pause))
}

// holdOf returns why a failed endpoint is not to be ejected.
func (d *Detector) holdOf(s *Suspect, now time.Time) Hold {
	switch {
	case s.said == None:
		return None // it was ejected; only good answers bring it back
	case s.Fault == probe.HostAnswers:
		return HostAlive
	case !d.Reaches(s):
		return NeverReached
	case s.Fault == probe.Refused:
		return None // who resets connections can be reached
	}
	return d.witness.hold(s, now)
}

func (d *Detector) setHold(s *Suspect, h Hold, now time.Time) {
	s.Hold = h
	if h == Asking {
		d.witness.wanted = true
		return
	}
	if s.said != h {
		s.said = h
		d.note(Fell, s, now)
		d.touch(&s.Check)
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
func (w *witness) hold(s *Suspect, now time.Time) Hold {
	switch {
	case !w.fresh(now):
		return Asking
	case w.latest == AllSilent, w.latest == NoWitness && s.Fault == probe.NoRoute:
		return Uplink
	}
	return None
}

// Witnessed records what the witnesses answered.
func (d *Detector) Witnessed(w Witnesses, now time.Time) {
	before := d.witness.latest
	d.witness = witness{latest: w, at: now}
	for s := range d.all {
		if s.Down && s.Hold == Asking {
			d.setHold(s, d.witness.hold(s, now), now)
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

// Doubts are where endpoints of a namespace gave a bad answer. Its own endpoints there are no witnesses. Those of other namespaces are,
// because it may write any address, and name any node.
type Doubts struct {
	Nodes map[string]bool
	Addrs map[netip.Addr]bool
}

// askWitnesses asks who shows whether this node has its network.
func (d *Detector) askWitnesses() Question {
	q := Question{Doubts: map[string]Doubts{}}
	for s := range d.all {
		if !s.Down && s.Falls == 0 {
			continue // anybody can raise a suspicion
		}
		of, known := q.Doubts[s.Service.Namespace]
		if !known {
			of = Doubts{map[string]bool{}, map[netip.Addr]bool{}}
			q.Doubts[s.Service.Namespace] = of
		}
		if of.Addrs[s.At.Addr()] = true; s.Word.Node != "" {
			of.Nodes[s.Word.Node] = true
		}
	}
	return q
}

// Suspects returns what is known of the endpoints of a Service that are suspected or failed, sorted by address; of all Services if it
// has no name.
func (d *Detector) Suspects(of state.Name) (list []Suspect) {
	for s := range d.all {
		if !s.calm && (of == state.Name{} || of == s.Service) {
			list = append(list, *s)
		}
	}
	slices.SortFunc(list, func(a, b Suspect) int { return cmp.Or(a.At.Compare(b.At), a.Service.Compare(b.Service)) })
	return list
}

// all yields all endpoints that are tracked.
func (d *Detector) all(yield func(*Suspect) bool) {
	for _, list := range d.tracked {
		for _, s := range list {
			if !yield(s) {
				return
			}
		}
	}
}
