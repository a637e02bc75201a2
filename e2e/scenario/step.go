package scenario

import (
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Step is one step of a scenario.
type Step struct {
	Line int
	Text string // as it is written, for messages
	// Do is what to do; one of the types below.
	Do any
	// Upstream is what to do instead when upstream's kube-proxy is tested; nil: the same.
	Upstream *Variant
	// IPVS is what to do instead when IPVS serves the Services (--backend=ipvs); nil: the same.
	IPVS *Variant
}

// Variant is what to do instead of a step.
type Variant struct {
	Do any
	// Instead is what is expected, as it is written; Because is why.
	Instead, Because string
}

// Expects tells whether the step checks something.
func (s *Step) Expects() bool {
	switch s.Do.(type) {
	case *Probe, *Send, *Tracked, *HTTP, *Burst, *Spread, *Many, *Crowd, *EndLoop, *Event, *Open:
		return true
	}
	return false
}

// Changes of the cluster.
type (
	// Apply creates or replaces objects.
	Apply struct{ YAML string }
	// Patch merges fields into an object.
	Patch struct{ Kind, Name, YAML string }
	// Delete deletes an object.
	Delete struct{ Kind, Name string }
	// Endpoints writes the EndpointSlices of a Service.
	Endpoints struct {
		Service string
		Slice   string     // suffix of the slices' names
		Other   bool       // in the other family
		List    []Endpoint // empty: the slice stays, without endpoints
	}
)

// Endpoint is one endpoint as it is written: a pod, its port and what is said about it.
type Endpoint struct {
	Pod   string
	Port  int // 0: what the Service's targetPort says, or 8080
	Count int // for "many": how many addresses
	// Conditions; nil is left out of the slice.
	Ready, Serving, Terminating *bool
	Zones, Nodes                []string // hints
}

// Changes of the node and its proxy.
type (
	// Restart ends the proxy and starts it again; Kill does not ask.
	Restart struct{ Kill bool }
	// Stop and Start do one half of it each.
	Stop  struct{}
	Start struct{}
	// Address adds an address to a link of the node or takes it away.
	Address struct {
		Remove bool
		Name   string
		Link   string
	}
	// Sysctl changes a setting of the node until the scenario ends.
	Sysctl struct{ Setting string }
	// Pause waits: for timeouts of the Service API, never for the proxy to get something done.
	Pause struct{ For time.Duration }
)

// Target is an address of the address book, and a port.
type Target struct {
	Name string // without $
	Port uint16
}

// Call says who asks whom.
type Call struct {
	Protocol lab.Protocol
	From     string
	To       Target
}

// Checks.
type (
	// Probe makes connections until all expected endpoints have answered, and others never.
	Probe struct {
		Call
		Expect
		Within time.Duration // how long the proxy may take to get there; 0: what is usual
	}
	// Open opens a flow that stays, or a socket whose first packet met with another outcome.
	Open struct {
		Flow string
		Call
		Expect
	}
	// Send asks again over a flow.
	Send struct {
		Flow string
		Expect
	}
	// Tracked looks at the node's connection tracking: which endpoints have flows to a target.
	Tracked struct {
		Protocol lab.Protocol
		To       Target
		Backends []string // empty: none
	}
	// HTTP makes one request.
	HTTP struct {
		From    string
		To      Target
		Path    string
		Code    int // 0: the connection is refused
		Headers map[string]string
		Body    []string // parts that must be there
	}
	// Burst makes connections one after the other, as fast as it can; each must end in time.
	Burst struct {
		Call
		Expect
		N      int
		Within time.Duration
		Late   bool // at least one is expected not to
	}
	// Spread makes connections and expects them to be spread evenly.
	Spread struct {
		Call
		Backends []string
		N        int
	}
	// Many makes connections and expects them to reach many different addresses.
	Many struct {
		Call
		N, AtLeast int
	}
	// Crowd makes a connection for each of N clients. The first of a name remembers who got which endpoint; later ones
	// expect the same, except for clients of one endpoint.
	Crowd struct {
		Name     string
		Protocol lab.Protocol
		To       Target
		N        int
		Backends []string
		Same     bool
		Except   string
		Changed  bool // somebody got another endpoint
	}
	// Loop connects again and again until EndLoop, which expects that no connection failed.
	Loop struct {
		Name string
		Call
	}
	// EndLoop ends a Loop. Failures: some connections are expected to have failed.
	EndLoop struct {
		Name     string
		Failures bool
	}
	// Event waits for an Event about an object.
	Event struct{ Kind, Name, Reason string }
)
