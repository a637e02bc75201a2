package health

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// ProxyOptions configure a Proxy.
type ProxyOptions struct {
	// Timeout is how long a change may wait for the kernel, and a turn of the loop may take, before the proxy counts as
	// unhealthy.
	Timeout time.Duration
	// Pause returns --min-sync-period. A change may wait for twice as long, even if that is longer than Timeout.
	Pause func() time.Duration
	// Families are the families that this node serves. Each has an entry in the answers.
	Families []state.Family
	// Now returns the current time.
	Now func() time.Time
	// Answered is called with the path ("/healthz") and the code of each answer. It may be nil.
	Answered func(path string, code int)
}

// Proxy is the health of the proxy. All methods may be called from any goroutine.
type Proxy struct {
	options ProxyOptions

	mu       sync.Mutex
	applied  time.Time // end of the latest pass that reached the kernel; zero: no pass has
	pending  time.Time // since when changes wait; zero: no change waits
	turned   time.Time // when the loop made a turn; zero: it has not begun
	eligible bool
	missing  func() []string
	draining bool
}

// NewProxy returns the health of a proxy that has just started. The proxy is alive, but unhealthy until its first pass
// has reached the kernel. The node counts as eligible until SetNode reports otherwise.
func NewProxy(o ProxyOptions) *Proxy { return &Proxy{options: o, eligible: true} }

// Pending records since when a change waits. The change that has waited longest counts. The caller does not report
// changes that wait for the first lists of the sources, because a proxy that cannot reach the API server is not
// unhealthy.
func (p *Proxy) Pending(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending.IsZero() || since.Before(p.pending) {
		p.pending = since
	}
}

// Turned records that the loop works. It makes a turn every second, even if nothing changes.
func (p *Proxy) Turned() { p.locked(func() { p.turned = p.options.Now() }) }

func (p *Proxy) locked(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

// PassDone records how a pass ended. The changes of a failed pass count as waiting since its start at the latest. A
// single failure does not make the proxy unhealthy if a later pass succeeds in time, because load balancers must not
// drop the node for it.
func (p *Proxy) PassDone(started time.Time, applied bool) {
	if !applied {
		p.Pending(started)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied, p.pending = p.options.Now(), time.Time{}
}

// SetNode records whether the node may get traffic. It is not eligible while it is about to go.
func (p *Proxy) SetNode(eligible bool) { p.locked(func() { p.eligible = eligible }) }

// SetDraining records that the node stops serving: /healthz and /readyz answer so from now on.
func (p *Proxy) SetDraining() { p.locked(func() { p.draining = true }) }

// SetMissing sets a function that names what the first pass waits for.
func (p *Proxy) SetMissing(missing func() []string) { p.locked(func() { p.missing = missing }) }

// Healthy reports whether the proxy works. It does not depend on the Node object.
func (p *Proxy) Healthy() bool { return p.is(healthy) }

// Stuck reports whether the loop has made no turn for too long. Changes that the kernel refuses do not count: a restart would
// not help them.
func (p *Proxy) Stuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.turned.IsZero() && p.options.Now().Sub(p.turned) >= p.options.Timeout
}

// Ready reports what /readyz answers.
func (p *Proxy) Ready() bool { return p.is(ready) }

func (p *Proxy) is(good judgment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status(good).Healthy
}

// Healthz answers whether the node should get traffic: the proxy works, and the Node is not about to be deleted.
func (p *Proxy) Healthz() http.Handler {
	return p.handler("/healthz", healthy, func(s *status) {
		eligible := p.eligible
		s.NodeEligible = &eligible
	})
}

// Livez answers whether the proxy is alive: the loop makes turns, and no change waits too long. A proxy that is starting is
// alive. Otherwise the kubelet would start it again and again while the API server is away, and thousands of nodes would
// list everything each time. Livez ignores the Node object, because a restart of the proxy would not keep the Node from being deleted.
func (p *Proxy) Livez() http.Handler { return p.handler("/livez", alive, func(*status) {}) }

// Readyz answers whether the rules of the proxy are in the kernel: its first pass has been applied, and the node does not
// drain. Until then, it names what the pass waits for. The rules of an earlier process stay in force.
func (p *Proxy) Readyz() http.Handler {
	return p.handler("/readyz", ready, func(s *status) {
		if !s.Healthy && p.missing != nil {
			s.WaitingFor = p.missing()
		}
	})
}

// handler answers with the status, to which it adds a part. The caller of add holds mu.
func (p *Proxy) handler(path string, good judgment, add func(*status)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		s := p.status(good)
		add(&s)
		p.mu.Unlock()
		p.answer(w, path, s)
	})
}

// judgment decides about the proxy. applied: a pass has reached the kernel, and the node does not drain. late: a change has waited too
// long, or the loop has made no turn for as long.
type judgment func(applied, late bool) bool

func healthy(applied, late bool) bool { return applied && !late }
func alive(_, late bool) bool         { return !late }
func ready(applied, _ bool) bool      { return applied }

// status is the body of the answers. Names and order are those of upstream.
type status struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyStatus `json:"status,omitempty"`
	WaitingFor   []string                `json:"waitingFor,omitempty"` // only in /readyz
}

type familyStatus struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// status returns the present status. The caller holds mu.
func (p *Proxy) status(good judgment) status {
	now := p.options.Now()
	tooOld := func(since time.Time, timeout time.Duration) bool { return !since.IsZero() && now.Sub(since) >= timeout }
	late := tooOld(p.pending, max(p.options.Timeout, 2*p.options.Pause())) || tooOld(p.turned, p.options.Timeout)
	s := status{
		LastUpdated: p.applied,
		CurrentTime: now,
		Healthy:     good(!p.applied.IsZero() && !p.draining, late),
		Status:      make(map[string]familyStatus, len(p.options.Families)),
	}
	for _, f := range p.options.Families {
		// One transaction carries both families, so their health is always the same.
		s.Status[f.Version()] = familyStatus{LastUpdated: p.applied, Healthy: s.Healthy}
	}
	return s
}

func (p *Proxy) answer(w http.ResponseWriter, path string, s status) {
	good := s.Healthy && (s.NodeEligible == nil || *s.NodeEligible)
	code := http.StatusServiceUnavailable
	if good {
		code = http.StatusOK
	}
	if good && !s.LastUpdated.IsZero() {
		// As in upstream, lastUpdated of a healthy proxy is the current time even when nothing has changed.
		s.LastUpdated = s.CurrentTime
	}
	writeHeaders(w)
	body, _ := json.Marshal(s) // fails only for a year above 9999; the code of the answer is still right
	w.WriteHeader(code)
	_, _ = w.Write(body) // fails only if the client has gone, and then there is no one to report it to
	if p.options.Answered != nil {
		p.options.Answered(path, code)
	}
}

func writeHeaders(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
