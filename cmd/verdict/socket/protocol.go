package socket

import (
	"time"
)

// name is the abstract socket. It differs from the one with which the daemon claims the network namespace.
const name = "@verdict-proxy-status"

// Paths of the questions.
const (
	pathStatus    = "/v1/status"
	pathPasses    = "/v1/passes"
	pathProblems  = "/v1/problems"
	pathEndpoints = "/v1/endpoints"
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
}

// Pass is one transaction of the daemon.
type Pass struct {
	Started    time.Time `json:"started"`
	Seconds    float64   `json:"seconds"`
	InKernel   float64   `json:"kernelSeconds"`
	Services   int       `json:"services"`
	Added      int       `json:"elementsAdded"`
	Deleted    int       `json:"elementsDeleted"`
	Operations int       `json:"virtualServerOperations,omitempty"`
	Full       bool      `json:"wroteEverything,omitempty"`
	Outcome    string    `json:"outcome"`
	Error      string    `json:"error,omitempty"`
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
}
