package suspicion

import (
	"cmp"
	"iter"
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
type Hold uint8

// The holds.
const (
	None         Hold = iota
	Asking            // the witnesses have not answered yet
	HostAlive         // its host answers at another port
	NeverReached      // it never answered this node
	Uplink            // no witness answers: this node has lost its network
	Mass              // endpoints on many nodes fell at the same time
	Limit             // as many endpoints of the pool are ejected as may be, or all have failed
	Observed          // no Service that has it ejects endpoints
	Doubtful          // if endpoints on other nodes give a second bad answer, they fell together with it
	NobodyGood        // it fails its check, and no endpoint is good
)

func (h Hold) String() string {
	return [...]string{
		"", "witnesses are being asked", "its host answers, so it is overloaded or a firewall drops questions of this node",
		"it never answered this node, so a network policy may keep the node away", "this node has lost its network",
		"endpoints on many nodes fell at the same time", "no more of the pool may be ejected",
		"its Services only observe", "endpoints on other nodes gave a bad answer, too; their next answers decide",
		"no endpoint is good",
	}[h]
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

// Phase is how far an endpoint has come.
type Phase uint8

// The phases.
const (
	Suspected Phase = iota // it is being asked
	Failed                 // it does not answer, or refuses
	Calm                   // a good answer has just cleared it
)

// Record is what is known of an endpoint of a Service that is under suspicion.
type Record struct {
	Member
	At     netip.AddrPort
	Phase  Phase
	Since  time.Time // of the phase
	Reason Reason
	Answer probe.Fault // of the latest answer
	Hold   Hold        // why it is not to be ejected although it failed; never that of a plan
	// StillReady: it has failed for stillReadyTime, and its EndpointSlice calls it ready.
	StillReady bool
}

// endpoint is what the detector knows of an endpoint under suspicion.
type endpoint struct {
	Record
	fails    int       // bad answers in a row
	rises    int       // good answers in a row
	fell     bool      // it failed without a word, as an endpoint of a dead node does
	next     time.Time // when to ask again; of a calm one: when to forget it
	due      schedule.Entry[*endpoint]
	pause    time.Duration // between questions to a failed one
	reported bool          // a note said that it failed
	told     bool          // a note said that it is still ready
	doubted  bool          // it came under suspicion while it was calm
	gone     bool
}

func (e *endpoint) enter(p Phase, now time.Time) {
	e.Phase, e.Since, e.fails, e.rises, e.told = p, now, 0, 0, false
}

// record returns what is known of the endpoint at this time.
func (e *endpoint) record() Record {
	r := e.Record
	r.StillReady = e.told && e.Word.Ready
	return r
}

// records lists the endpoints that are suspected or failed.
func records(endpoints iter.Seq[*endpoint]) (list []Record) {
	for e := range endpoints {
		if e.Phase != Calm {
			list = append(list, e.record())
		}
	}
	slices.SortFunc(list, func(a, b Record) int { return cmp.Or(a.At.Compare(b.At), a.Service.Compare(b.Service)) })
	return list
}

// Kind is what happened to an endpoint, or to the network of this node.
type Kind uint8

// The kinds.
const (
	SuspicionBegan Kind = iota
	SuspicionEnded      // by a good answer
	Fell                // by bad answers; the record says whether it is held, and why
	Recovered           // by good answers
	NewWord             // its EndpointSlice says something new about it
	EndpointGone
	FellAtOnce  // too many endpoints of a Service fell at once, and none is ejected
	NetworkLost // of this node
	NetworkBack
	StillReady // it has failed for stillReadyTime, and its EndpointSlice calls it ready
)

func (k Kind) String() string {
	return [...]string{
		SuspicionBegan: "asking an endpoint whether it answers",
		SuspicionEnded: "the endpoint answers",
		Fell:           "an endpoint does not answer",
		Recovered:      "an endpoint answers again",
		NewWord:        "the EndpointSlice of an endpoint that did not answer has changed; it gets connections again",
		EndpointGone:   "an endpoint that did not answer is gone",
		FellAtOnce:     "endpoints of a Service on many nodes fell at the same time; none of them is ejected",
		NetworkLost:    "no endpoint on other nodes answers: this node has lost its network; nothing is ejected",
		NetworkBack:    "endpoints on other nodes answer again",
		StillReady:     "the endpoint has not answered for a minute; " + OnlyHere,
	}[k]
}

// OnlyHere is what StillReady means.
const OnlyHere = "its slice still calls it ready: perhaps only this node cannot reach it"

// Note is something that happened.
type Note struct {
	Kind Kind
	At   time.Time
	// Record is of the endpoint before it happened; after it, for SuspicionBegan, Fell and StillReady. FellAtOnce is about a Service
	// only, and what happens to the network of this node about none.
	Record Record
}

func (d *Detector) note(kind Kind, e *endpoint, now time.Time) {
	d.Note(Note{Kind: kind, At: now, Record: e.record()})
}
