package suspicion

import (
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

// Record is what is known of an endpoint under suspicion.
type Record struct {
	At     netip.AddrPort
	Phase  Phase
	Since  time.Time // of the phase
	Reason Reason
	Answer probe.Fault // of the latest answer
	Hold   Hold        // why it is not to be ejected although it failed; never that of a plan
	// StillReady: it has failed for stillReadyTime, and its EndpointSlice calls it ready.
	StillReady bool
	Members    []Member // the Services that have it; never empty
}

// Node returns the node of the endpoint.
func (r *Record) Node() string { return r.Members[0].Word.Node }

// Services returns the Services that have the endpoint.
func (r *Record) Services() (list []state.Name) {
	for i := range r.Members {
		list = append(list, r.Members[i].Service)
	}
	return list
}

// endpoint is what the detector knows of an endpoint under suspicion.
type endpoint struct {
	Record
	owner    string    // the namespace that it counts for
	fails    int       // bad answers in a row
	rises    int       // good answers in a row
	fell     bool      // it failed without a word, as an endpoint of a dead node does
	next     time.Time // when to ask again; of a calm one: when to forget it
	due      schedule.Entry[*endpoint]
	pause    time.Duration // between questions to a failed one
	reported bool          // a note said that it failed
	told     bool          // a note said that it is still ready
	doubted  bool          // it came under suspicion while it was calm
}

// shared reports whether Services of several namespaces have the endpoint.
func (e *endpoint) shared() bool {
	return slices.ContainsFunc(e.Members, func(m Member) bool { return m.Service.Namespace != e.Members[0].Service.Namespace })
}

func (e *endpoint) enter(p Phase, now time.Time) {
	e.Phase, e.Since, e.fails, e.rises, e.told = p, now, 0, 0, false
}

// record returns what is known of the endpoint at this time.
func (e *endpoint) record() Record {
	r := e.Record
	r.StillReady = e.told && e.ready()
	r.Members = slices.Clone(e.Members)
	return r
}

// ready reports whether a slice calls it ready.
func (e *endpoint) ready() bool {
	return slices.ContainsFunc(e.Members, func(m Member) bool { return m.Word.Ready })
}

// nodes lists the nodes on which the Services say that the endpoint is. A tenant may write a wrong one, so each namespace is heard.
func (e *endpoint) nodes() (list []string) {
	heard := map[string]bool{}
	for i := range e.Members {
		m := &e.Members[i]
		if node := m.Word.Node; node != "" && !heard[m.Service.Namespace] {
			heard[m.Service.Namespace] = true
			if !slices.Contains(list, node) {
				list = append(list, node)
			}
		}
	}
	return list
}

// member returns the endpoint as a Service has it.
func (e *endpoint) member(service state.Name) *Member {
	i := slices.IndexFunc(e.Members, func(m Member) bool { return m.Service == service })
	if i < 0 {
		return nil
	}
	return &e.Members[i]
}
