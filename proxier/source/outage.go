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

// outages logs the loss of the API server once, not once per retry and resource, and once that it is over.
type outages struct {
	log     *slog.Logger
	mu      sync.Mutex
	failing map[string]string // resource -> cause
	since   time.Time
}

func newOutages(log *slog.Logger) *outages {
	return &outages{log: log, failing: map[string]string{}}
}

// failed notes a failure of a resource; next says what happens now.
func (o *outages) failed(resource string, err error, next string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	cause := causeOf(err)
	known := o.failing[resource] == cause
	if cause == unreachable {
		// All resources lose the same server: one line is enough.
		for _, other := range o.failing {
			known = known || other == cause
		}
	}
	if len(o.failing) == 0 {
		o.since = time.Now()
	}
	o.failing[resource] = cause
	if !known {
		o.log.Warn("cannot read from the Kubernetes API", "resource", resource, "err", err, "next", next)
	}
}

// works notes that a resource is being watched.
func (o *outages) works(resource string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, failing := o.failing[resource]; !failing {
		return
	}
	delete(o.failing, resource)
	if len(o.failing) == 0 {
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
