package checks

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/state"
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

// Hold is why a failed endpoint gets connections all the same.
type Hold string

// The holds.
const (
	None         Hold = ""
	Asking       Hold = "witnesses are being asked"
	HostAlive    Hold = "its host answers, so it is overloaded or a firewall drops questions of this node"
	NeverReached Hold = "it never answered this node, so a network policy may keep the node away"
	Uplink       Hold = "this node has lost its network" // no witness answers
	Mass         Hold = "endpoints on many nodes fell at the same time"
	Limit        Hold = "no more of the pool may be ejected" // or all have failed
	Observed     Hold = "its Services only observe"
	Doubtful     Hold = "endpoints on other nodes gave a bad answer, too; their next answers decide"
	NobodyGood   Hold = "no endpoint is good"
)

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
	Member
	Record     // Since is when it failed, or came under suspicion; Fault is of the latest answer, also of a good one
	At         netip.AddrPort
	Reason     Reason
	Hold       Hold // why it is not to be ejected although it failed; never that of a plan
	StillReady bool // it has failed for stillReadyTime, and its EndpointSlice calls it ready
	said       Hold // with which hold a note said that it failed; Asking: none did

	calm    bool          // a good answer has just cleared it
	doubted bool          // it came under suspicion while it was calm
	fell    bool          // it failed without a word, as an endpoint of a dead node does
	gone    bool          // nobody wants to know
	pause   time.Duration // between questions to a failed one
	next    time.Time     // when to ask again; of a calm one: from when on suspicions count
	due     schedule.Entry[*Suspect]
}

// begin has its answers count anew.
func (e *Suspect) begin(calm bool, now time.Time) {
	e.calm, e.StillReady, e.Hold, e.said = calm, false, None, Asking
	e.Record = Record{Passed: true, Since: now, Fault: e.Fault}
}

// Kind is what happened to an endpoint, or to the network of this node.
type Kind string

// The kinds.
const (
	SuspicionBegan Kind = "asking an endpoint whether it answers"
	SuspicionEnded Kind = "the endpoint answers"
	Fell           Kind = "an endpoint does not answer" // the record says whether it is held, and why
	Recovered      Kind = "an endpoint answers again"
	NewWord        Kind = "the EndpointSlice of an endpoint that did not answer has changed; it gets connections again"
	EndpointGone   Kind = "an endpoint that did not answer is gone"
	FellAtOnce     Kind = "endpoints of a Service on many nodes fell at the same time; none of them is ejected"
	NetworkLost    Kind = "API servers and endpoints on other nodes do not answer: this node has lost its network; nothing is ejected"
	NetworkBack    Kind = "API servers or endpoints on other nodes answer again"
	StillReady     Kind = "the endpoint has not answered for a minute; " + OnlyHere
	CheckFails     Kind = "an endpoint fails its check"
	CheckPasses    Kind = "an endpoint passes its check again"
)

// OnlyHere is what StillReady means.
const OnlyHere = "its slice still calls it ready: perhaps only this node cannot reach it"

// Note is something that happened.
type Note struct {
	Kind Kind
	At   time.Time
	// Suspect is of the endpoint before it happened; after it, for SuspicionBegan, Fell and StillReady. FellAtOnce is about a
	// Service only; what happens to the network of this node, and to a check, about none.
	Suspect Suspect
	// A check has these.
	Question *probe.Question
	Why      string
	Services []state.Name // that ask for the check, sorted
}

func (d *Detector) note(kind Kind, e *Suspect, now time.Time) {
	d.Note(Note{Kind: kind, At: now, Suspect: *e})
}

// Failures returns the endpoints of a Service that have failed and are not held. Silent ones are not in it while too
// many of the Service fell at once; while that is in doubt, only those that were in it before are in it.
func (d *Detector) Failures(service state.Name, before state.Health, now time.Time) (list state.Health) {
	of := d.services[service]
	if of == nil {
		return nil
	}
	mass, maybe := of.mass()
	if mass && !of.fallen {
		d.Note(Note{Kind: FellAtOnce, At: now, Suspect: Suspect{Member: Member{Service: service}}})
	}
	of.fallen, of.doubtful = mass, maybe && !mass
	for at, e := range of.endpoints {
		if !e.Down || e.Hold != None {
			continue
		}
		f := state.Failure{Protocol: state.TCP, At: at, Since: e.Since, Sure: !e.fell}
		_, had := slices.BinarySearchFunc(before, f, state.Failure.Compare)
		if f.Sure || !mass && (!maybe || had) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, state.Failure.Compare)
	return list
}

// massWindow is how close in time endpoints fail that fall at once: all are asked within it.
const massWindow = 10 * time.Second

// mass reports whether endpoints of a Service on two or more nodes, and on at least half of its nodes, failed at the
// same time. Then the cause is more likely between this node and the others than at each of them. Maybe reports whether this
// is so if the endpoints fail that have given one bad answer: the next answer decides, and until then no other endpoint is
// ejected.
func (s *suspects) mass() (sure, maybe bool) {
	fell, doubted := map[string]time.Time{}, map[string]time.Time{} // by node; the second one also has those of the first
	nodes := 0
	for _, e := range s.endpoints {
		failed := e.Down && e.fell
		if e.Word.Node == "" || !failed && (e.Down || e.Falls == 0 || e.Fault == probe.Refused) {
			continue
		}
		nodes = max(nodes, e.Nodes)
		if earliest(doubted, e.Word.Node, e.Since); failed {
			earliest(fell, e.Word.Node, e.Since)
		}
	}
	sure = isMass(fell, nodes)
	return sure, sure || isMass(doubted, nodes)
}

func earliest(times map[string]time.Time, node string, at time.Time) {
	if before, known := times[node]; !known || at.Before(before) {
		times[node] = at
	}
}

// isMass judges when endpoints of each node first failed. Nodes is how many the Service has.
func isMass(fell map[string]time.Time, nodes int) bool {
	if len(fell) < 2 || 2*len(fell) < nodes {
		return false
	}
	first := slices.SortedFunc(maps.Values(fell), time.Time.Compare)
	n := max(2, (nodes+1)/2)
	for i := range len(first) - n + 1 {
		if first[i+n-1].Sub(first[i]) <= massWindow {
			return true
		}
	}
	return false
}

// Withheld returns why a failed endpoint is not among the failures of its Service.
func (d *Detector) Withheld(r *Suspect) Hold {
	switch of := d.services[r.Service]; {
	case of.fallen:
		return Mass
	case of.doubtful:
		return Doubtful
	}
	return None
}
