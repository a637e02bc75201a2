// Package health shows to the outside whether this node's proxy works: /healthz and /livez for the proxy itself, and a
// healthCheckNodePort server for each Service that asks for one. Answers are those of upstream kube-proxy 1.37, byte for
// byte where a load balancer or a probe could look.
//
// It judges only what the loop tells it; it neither plans nor programs.
package health

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// ProxyOptions configure a Proxy.
type ProxyOptions struct {
	// Timeout is how long a change may wait for the kernel before the proxy counts as unhealthy.
	Timeout time.Duration
	// Families that this node serves; each has an entry in the answers.
	Families []state.Family
	// Now tells the time.
	Now func() time.Time
	// Answered is told the path ("/healthz") and code of each answer; may be nil.
	Answered func(path string, code int)
}

// Proxy is the health of the proxy. All methods may be called from any goroutine.
type Proxy struct {
	options ProxyOptions

	mu       sync.Mutex
	applied  time.Time // end of the latest pass that reached the kernel; zero: none did
	pending  time.Time // since when changes wait; zero: none do
	eligible bool
}

// NewProxy makes the health of a proxy whose first pass has not reached the kernel: unhealthy until it has. The node
// counts as eligible until SetNode says otherwise.
func NewProxy(o ProxyOptions) *Proxy { return &Proxy{options: o, eligible: true} }

// Pending says that changes wait since a time. The oldest waiting change counts.
func (p *Proxy) Pending(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending.IsZero() || since.Before(p.pending) {
		p.pending = since
	}
}

// PassDone says how a pass ended. One that failed leaves its changes pending at least since it started: a single failure
// that is made good in time is nobody's concern, a node must not be taken out of load balancing for it.
func (p *Proxy) PassDone(started time.Time, applied bool) {
	if !applied {
		p.Pending(started)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied, p.pending = p.options.Now(), time.Time{}
}

// SetNode says whether the Node may get traffic: it is not while it is being deleted or tainted for deletion.
func (p *Proxy) SetNode(eligible bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eligible = eligible
}

func (p *Proxy) nodeEligible() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.eligible
}

// Healthy tells whether the proxy works, whatever becomes of the Node.
func (p *Proxy) Healthy() bool { return p.status().Healthy }

// Healthz answers whether the node should get traffic: the proxy works and the Node is to stay.
func (p *Proxy) Healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := p.status()
		eligible := p.nodeEligible()
		s.NodeEligible = &eligible
		p.answer(w, "/healthz", s, s.Healthy && eligible)
	})
}

// Livez answers whether the proxy works. It leaves the Node out: restarting the proxy would not help a node that goes.
func (p *Proxy) Livez() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := p.status()
		p.answer(w, "/livez", s, s.Healthy)
	})
}

// status is the body of the answers, named and ordered as upstream does it.
type status struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyStatus `json:"status,omitempty"`
}

type familyStatus struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

func (p *Proxy) status() status {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.options.Now()
	late := !p.pending.IsZero() && now.Sub(p.pending) >= p.options.Timeout
	s := status{
		LastUpdated: p.applied,
		CurrentTime: now,
		Healthy:     !p.applied.IsZero() && !late,
		Status:      make(map[string]familyStatus, len(p.options.Families)),
	}
	for _, f := range p.options.Families {
		// One transaction carries both families, so they are never in different health.
		s.Status[f.String()] = familyStatus{LastUpdated: p.applied, Healthy: s.Healthy}
	}
	return s
}

func (p *Proxy) answer(w http.ResponseWriter, path string, s status, good bool) {
	code := http.StatusServiceUnavailable
	if good {
		code = http.StatusOK
		// Upstream's promise since its first days: of a healthy proxy the time is recent even when nothing changed.
		s.LastUpdated = s.CurrentTime
	}
	writeHeaders(w)
	body, err := json.Marshal(s)
	if err != nil {
		// Only a year above 9999 cannot be written; the code still tells what matters.
		body = []byte(`{"error":` + strconv.Quote(err.Error()) + `}`)
	}
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client went away: nobody is left to tell
	if p.options.Answered != nil {
		p.options.Answered(path, code)
	}
}

func writeHeaders(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
