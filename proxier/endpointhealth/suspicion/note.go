package suspicion

import (
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

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
	Kind    Kind
	At      time.Time
	Record  Record     // of the endpoint before it happened; after it, for SuspicionBegan, Fell and StillReady
	Service state.Name // of FellAtOnce, which has no Record
}

func (d *Detector) note(kind Kind, e *endpoint, now time.Time) {
	d.Note(Note{Kind: kind, At: now, Record: e.record()})
}
