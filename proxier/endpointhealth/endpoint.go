package endpointhealth

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

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

// phase is how far an endpoint has come.
type phase uint8

const (
	suspected phase = iota
	failed
	calm // a good answer has just cleared it
)

// endpoint is what the detector knows of an endpoint under suspicion.
type endpoint struct {
	at       netip.AddrPort
	members  []Member // never empty
	phase    phase
	reason   Reason
	since    time.Time // of the phase
	fails    int       // bad answers in a row
	rises    int       // good answers in a row
	latest   Fault     // of the latest answer
	hold     Hold
	fell     bool // it failed without a word, as an endpoint of a dead node does
	asking   bool
	payer    string        // the namespace that asks, or did so the last time
	queue    *suspectQueue // nil: it is being asked
	index    int           // in the queue
	next     time.Time     // when to ask again; of a calm one: when to forget it
	pause    time.Duration // between questions to a failed one
	reported bool          // a note said that it failed
	// stillReady: a note said that it has failed for a long time, and its slice calls it ready.
	stillReady bool
}

func (e *endpoint) namespace() string { return e.members[0].Service.Namespace }

func (e *endpoint) node() string { return e.members[0].Word.Node }

func (e *endpoint) enter(p phase, now time.Time) {
	e.phase, e.since, e.fails, e.rises, e.stillReady = p, now, 0, 0, false
}

// ready reports whether a slice calls it ready.
func (e *endpoint) ready() bool {
	return slices.ContainsFunc(e.members, func(m Member) bool { return m.Word.Ready })
}

// member returns the endpoint as a Service has it.
func (e *endpoint) member(service state.Name) *Member {
	for i := range e.members {
		if e.members[i].Service == service {
			return &e.members[i]
		}
	}
	return nil
}

// suspectQueue is a heap of endpoints by the time of their next question.
type suspectQueue []*endpoint

func (q suspectQueue) Len() int { return len(q) }

func (q suspectQueue) Less(i, j int) bool {
	return cmp.Or(q[i].next.Compare(q[j].next), q[i].at.Compare(q[j].at)) < 0
}

func (q suspectQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *suspectQueue) Push(x any) {
	e := x.(*endpoint)
	e.queue, e.index = q, len(*q)
	*q = append(*q, e)
}

// Pop is for package heap.
func (q *suspectQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.queue = nil
	return e
}
