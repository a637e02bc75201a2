package cluster

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unreachable is the cause of every failure that is not an answer of the API server.
const unreachable = "unreachable"

// denialsToLog is how often in a row the API server must deny a resource before that is logged. An API server that has
// just started denies everything for about a second, until it has loaded its RBAC rules.
const denialsToLog = 3

// outages logs the loss of the API server once, instead of once for each resource and attempt. It logs the end as well.
type outages struct {
	log     *slog.Logger
	report  func(resource string, up bool) // after each list, opened watch and failure
	mu      sync.Mutex
	failing map[string]*failure // by resource
	since   time.Time
	logged  bool // something has been logged since then
}

// failure is the current failure of a resource.
type failure struct {
	cause  string
	times  int // in a row
	logged bool
	denied bool // and Verdict works without it
}

func newOutages(log *slog.Logger, report func(resource string, up bool)) *outages {
	if report == nil {
		report = func(string, bool) {}
	}
	return &outages{log: log, report: report, failing: map[string]*failure{}}
}

// failed records a failure of a resource. next is the text about what happens now.
func (o *outages) failed(resource string, err error, next string) {
	o.record(resource, err, next, false)
}

// lacks records that the API server denies a resource without which Verdict works. That is logged, and is no outage.
func (o *outages) lacks(resource string, err error, next string) { o.record(resource, err, next, true) }

func (o *outages) record(resource string, err error, next string, denied bool) {
	o.report(resource, false)
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.lasts()
	if !before {
		o.since, o.logged = time.Now(), false
	}
	f, cause := o.failing[resource], causeOf(err)
	if f == nil || f.cause != cause {
		f = &failure{cause: cause}
		o.failing[resource] = f
	}
	f.times++
	f.denied = denied
	if o.shouldLog(f) {
		f.logged, o.logged = true, true
		o.log.Warn("cannot read from the Kubernetes API", "resource", resource, "error", err, "next", next)
	}
	if before {
		o.sayEnd()
	}
}

// lasts reports whether an outage lasts.
func (o *outages) lasts() bool {
	for _, f := range o.failing {
		if !f.denied {
			return true
		}
	}
	return false
}

// sayEnd logs the end of an outage, once.
func (o *outages) sayEnd() {
	if !o.lasts() && o.logged {
		o.logged = false
		o.log.Info("the Kubernetes API can be read again", "after", time.Since(o.since).Round(time.Millisecond))
	}
}

// shouldLog reports whether a failure is worth a line. A failure is logged once. All resources lose the same server, so
// one line for all of them is enough.
func (o *outages) shouldLog(f *failure) bool {
	if f.cause == string(reasonImplausible) {
		return !f.logged
	}
	if f.cause != unreachable {
		return !f.logged && f.times >= denialsToLog
	}
	for _, other := range o.failing {
		if other.cause == unreachable && other.logged {
			return false
		}
	}
	return true
}

// works records that a resource has a complete list, or that its watch goes on.
func (o *outages) works(resource string) {
	o.report(resource, true)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, failing := o.failing[resource]; !failing {
		return
	}
	delete(o.failing, resource)
	o.sayEnd()
}

func causeOf(err error) string {
	if errors.Is(err, errImplausible) {
		return string(reasonImplausible)
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason == metav1.StatusReasonUnknown {
		return unreachable
	}
	return string(status.Status().Reason)
}
