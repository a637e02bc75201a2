package socket

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// name is the abstract socket. It differs from the one with which the daemon claims the network namespace.
const name = "@verdict-proxy-status"

// Paths of the questions.
const (
	pathStatus    = "/v1/status"
	pathPasses    = "/v1/passes"
	pathProblems  = "/v1/problems"
	pathEndpoints = "/v1/endpoints"
	pathFrontends = "/v1/frontends"
	pathNames     = "/v1/names"
	pathServices  = "/v1/services"
	pathOutliers  = "/v1/outliers"
	pathPassing   = "/v1/passing"
	pathFastPath  = "/v1/fastpath"
	pathLeave     = "/v1/leave"  // POST
	pathEnd       = "/v1/end"    // POST
	pathReload    = "/v1/reload" // POST
	pathDrain     = "/v1/drain"  // POST
)

// Status is what the daemon does.
type Status struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Synced: the sources have delivered their first lists.
	Synced bool `json:"synced"`
	// WaitingServices have changed and are not in the kernel yet; Waiting is the time of the oldest such change.
	WaitingServices int       `json:"waitingServices"`
	Waiting         time.Time `json:"waitingSince,omitzero"`
	Passes          uint64    `json:"passes"`
	LastError       string    `json:"lastError,omitempty"` // of the latest pass, if it failed
	// Frontends and Endpoints are what the engines serve after the latest pass.
	Frontends int `json:"frontends"`
	Endpoints int `json:"endpoints"`
	// Down counts frontends of which no endpoint is good, and Faulty objects with problems.
	Down   int `json:"frontendsDown,omitempty"`
	Faulty int `json:"objectsWithProblems,omitempty"`
	// Manifests is the folder of --manifests; "": an API server has the objects.
	Manifests string `json:"manifests,omitempty"`
	// Drain is how far the daemon has stopped serving; "": it has not begun.
	Drain string `json:"drain,omitempty"`
	// Leaving is why this node is about to go; "": it is not.
	Leaving      string    `json:"leaving,omitempty"`
	LeavingSince time.Time `json:"leavingSince,omitzero"`
}

// Line is the status in one line.
func (s *Status) Line() string {
	switch {
	case s.Drain != "":
		return "draining: " + s.Drain
	case !s.Synced:
		return "waiting for the first lists of objects and addresses"
	case s.LastError != "":
		return "the last pass failed, and is tried again: " + strings.ReplaceAll(s.LastError, "\n", "; ")
	case s.Passes == 0:
		return "writing the first rules"
	}
	line := state.Plural(s.Frontends, "frontend") + " with " + state.Plural(s.Endpoints, "endpoint")
	if s.Down > 0 {
		line = fmt.Sprintf("%d of %s", s.Frontends-s.Down, line)
	}
	line = "serving " + line
	if s.Faulty > 0 {
		line += "; problems of " + state.Plural(s.Faulty, "object")
	}
	if s.WaitingServices > 0 {
		line += fmt.Sprintf("; changes of %s wait", state.Plural(s.WaitingServices, "Service"))
	}
	if s.Leaving != "" {
		line += "; this node is leaving: " + s.Leaving
	}
	return line
}

// Drain says how the daemon stops serving.
type Drain struct {
	// Settle is how long new connections are still served after the addresses have left: routers need time to notice.
	Settle time.Duration
	// Timeout is how long open connections may go on.
	Timeout time.Duration
}

// Passing counts the open connections of a service port that go through this node.
type Passing struct {
	Service  string `json:"service"`  // namespace/name:port
	Client   string `json:"client"`   // ClientOutside, ClientPod or ClientNode
	Endpoint string `json:"endpoint"` // EndpointHere or EndpointElsewhere
	Open     int    `json:"open"`
	FastPath int    `json:"fastPath,omitempty"` // of them: their packets skip the rules
}

// Who the client of a connection is, and where its endpoint is.
const (
	ClientOutside     = "outside"
	ClientPod         = "pod"
	ClientNode        = "node"      // this node
	EndpointHere      = "here"      // on this node
	EndpointElsewhere = "elsewhere" // on another one
)

// Stranded counts the connections that nobody but this node keeps alive: those of clients outside to endpoints on other nodes. They
// die with this node.
func Stranded(rows []Passing) (n int) {
	for i := range rows {
		if rows[i].Client == ClientOutside && rows[i].Endpoint == EndpointElsewhere {
			n += rows[i].Open
		}
	}
	return n
}

// done answers a request. Fault says what was not done; "": everything was.
type done struct {
	Fault string `json:"fault,omitempty"`
	Ended int    `json:"ended,omitempty"` // connections
}

func doneWith(err error) (d done) {
	if err != nil {
		d.Fault = err.Error()
	}
	return d
}

// Pass is one transaction of the daemon.
type Pass struct {
	Number  uint64    `json:"number"` // counts from 1
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Change is the time from when the oldest change came until the kernel had it. 0: the pass failed.
	Change     float64 `json:"changeSeconds,omitempty"`
	InKernel   float64 `json:"kernelSeconds"`
	Services   int     `json:"services"`
	Added      int     `json:"elementsAdded"`
	Deleted    int     `json:"elementsDeleted"`
	Operations int     `json:"virtualServerOperations,omitempty"`
	Full       bool    `json:"wroteEverything,omitempty"`
	Outcome    string  `json:"outcome"`
	Error      string  `json:"error,omitempty"`
}

// Problem is a part of an object that is not honored.
type Problem struct {
	Kind   string `json:"kind"`
	Object string `json:"object"` // namespace/name
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// Endpoint is an endpoint of a Service port, and why it is left out.
type Endpoint struct {
	Port string `json:"port"` // namespace/name:port
	Addr string `json:"endpoint"`
	Node string `json:"node,omitempty"`
	// OutOfCluster and OutOfLocal say why it is not in the pool of policy Cluster or Local; "": it is.
	OutOfCluster string `json:"leftOutOfCluster,omitempty"`
	OutOfLocal   string `json:"leftOutOfLocal,omitempty"`
	// Remark is what Outliers say of it, as seen from its Service; "": nothing.
	Remark string `json:"remark,omitempty"`
	// Bad: it is suspected, failed, or fails its check. NoNew: it gets no new connections, for the reason in Remark.
	Bad   bool `json:"bad,omitempty"`
	NoNew bool `json:"noNewConnections,omitempty"`
}

// Frontends are where Services may be served. The kernel may have fewer.
type Frontends struct {
	// Unsure: the kernel may have other frontends, because a change waits or the latest pass failed.
	Unsure bool       `json:"unsure,omitempty"`
	List   []Frontend `json:"frontends"`
}

// Frontend is an address and port of a Service.
type Frontend struct {
	Address  netip.Addr `json:"address,omitzero"` // not valid: a node port
	Family   string     `json:"family"`
	Protocol uint8      `json:"protocol"`
	Port     uint16     `json:"port"`
}

// Services are those that have an endpoint.
type Services struct {
	Unsure bool     `json:"unsure,omitempty"` // as in Frontends, for one of the Services
	List   []string `json:"services"`         // namespace/name
}
