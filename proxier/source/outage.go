package source

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unreachable is the cause of a failure that is not an answer of the API server.
const unreachable = "unreachable"

// convincing is how often an API server must deny a resource before it is believed and logged: one that has just
// started denies everything until it has loaded its own RBAC rules, about a second later.
const convincing = 3

// outages logs the loss of the API server once, not once per retry and resource, and once that it is over.
type outages struct {
	log     *slog.Logger
	mu      sync.Mutex
	failing map[string]*failure // by resource
	since   time.Time
	logged  bool // anything since then
}

// failure is what a resource suffers from.
type failure struct {
	cause  string
	times  int // in a row
	logged bool
}

func newOutages(log *slog.Logger) *outages {
	return &outages{log: log, failing: map[string]*failure{}}
}

// failed notes a failure of a resource; next says what happens now.
func (o *outages) failed(resource string, err error, next string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failing) == 0 {
		o.since, o.logged = time.Now(), false
	}
	f, cause := o.failing[resource], causeOf(err)
	if f == nil || f.cause != cause {
		f = &failure{cause: cause}
		o.failing[resource] = f
	}
	f.times++
	if !o.worthSaying(f) {
		return
	}
	f.logged, o.logged = true, true
	o.log.Warn("cannot read from the Kubernetes API", "resource", resource, "err", err, "next", next)
}

// worthSaying leaves out what was said and what will be over by itself. All resources lose the same server, so one line
// about that is enough.
func (o *outages) worthSaying(f *failure) bool {
	if f.cause != unreachable {
		return !f.logged && f.times >= convincing
	}
	for _, other := range o.failing {
		if other.cause == unreachable && other.logged {
			return false
		}
	}
	return true
}

// works notes that a resource is being watched.
func (o *outages) works(resource string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, failing := o.failing[resource]; !failing {
		return
	}
	delete(o.failing, resource)
	if len(o.failing) == 0 && o.logged {
		o.log.Info("the Kubernetes API is read again", "after", time.Since(o.since).Round(time.Millisecond))
	}
}

func causeOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason == metav1.StatusReasonUnknown {
		return unreachable
	}
	return string(status.Status().Reason)
}
