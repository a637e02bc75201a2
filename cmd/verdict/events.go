package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	kevents "k8s.io/client-go/tools/events"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// events raises Kubernetes Events on Services that have a problem. If objects come from a folder of manifests, it does
// nothing. The log and the metrics show the same problems.
type events struct {
	client   kubernetes.Interface
	log      *slog.Logger
	recorder kevents.EventRecorder
	queue    chan note
	raised   map[state.Name][]state.Problem // used by the goroutine of the loop only
}

type note struct {
	service      state.Name
	reason, text string
}

// eventQueue limits how many Events wait for the API server. Further problems are only in the log and the metrics.
const eventQueue = 256

func newEvents(client kubernetes.Interface, log *slog.Logger) *events {
	return &events{client: client, log: log, queue: make(chan note, eventQueue), raised: map[state.Name][]state.Problem{}}
}

// run sends Events until the context ends.
func (e *events) run(ctx context.Context) error {
	if e.client == nil {
		return nil
	}
	broadcaster := kevents.NewBroadcaster(&kevents.EventSinkImpl{Interface: e.client.EventsV1()})
	defer broadcaster.Shutdown()
	e.recorder = broadcaster.NewRecorder(scheme.Scheme, "verdict")
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start to record Events: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-e.queue:
			e.raise(ctx, n)
		}
	}
}

// raise first reads the UID of the Service, because "kubectl describe" shows only Events that have it.
func (e *events) raise(ctx context.Context, n note) {
	svc, err := e.client.CoreV1().Services(n.service.Namespace).Get(ctx, n.service.Name, metav1.GetOptions{})
	if err != nil {
		e.log.Warn("cannot raise an Event; the problem is in the log and in the metrics only", "object", n.service.String(), "error", err)
		return
	}
	regarding := &corev1.ObjectReference{
		Kind: "Service", APIVersion: "v1", Namespace: svc.Namespace, Name: svc.Name, UID: svc.UID, ResourceVersion: svc.ResourceVersion,
	}
	e.recorder.Eventf(regarding, nil, corev1.EventTypeWarning, n.reason, "Proxy", "%s", n.text)
}

// problems raises an Event for each new problem of a Service.
func (e *events) problems(changed []state.ObjectProblems) {
	for _, c := range changed {
		if c.Object.Kind != "Service" {
			continue
		}
		for _, p := range c.Problems {
			if !slices.Contains(e.raised[c.Object.Name], p) {
				e.service(p.Object, "NotHonored", p.Field+": "+p.Reason)
			}
		}
		e.raised[c.Object.Name] = c.Problems
		if len(c.Problems) == 0 {
			delete(e.raised, c.Object.Name)
		}
	}
}

// service puts an Event into the queue. It does not wait.
func (e *events) service(name state.Name, reason, text string) {
	if e.client == nil {
		return
	}
	select {
	case e.queue <- note{service: name, reason: reason, text: text}:
	default:
		e.log.Warn("too many Events wait for the API server; this one is dropped", "object", name.String(), "reason", reason)
	}
}
