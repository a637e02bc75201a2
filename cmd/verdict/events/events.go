// Package events raises Kubernetes Events about Services and about the Node.
package events

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/source/cluster"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Recorder raises Kubernetes Events on Services that have a problem, and on the Node when a process changes the tables. If
// objects come from a folder of manifests, it does nothing. The log and the metrics show the same problems.
//
// Every node finds the same problems. So the name of an Event follows from the Service and the kinds of its problems, and
// not from the node or the time: the node that comes first creates the Event, and the API server answers the others that
// it exists.
type Recorder struct {
	client  kubernetes.Interface // has a rate limit of its own, so that watches do not wait for Events
	node    string
	store   *state.Store // has the UIDs of the Services
	log     *slog.Logger
	queue   noteQueue
	raised  map[state.Name][]string // the kinds of problems; used by the goroutine of the loop only, as blamed
	blamed  report.Lately           // the processes that an Event named
	dropped func()                  // counts an Event that found no room
}

// Event is an Event that waits to be raised.
type Event struct {
	Service      state.Name
	Reason, Text string
	Topic        string // two Events with the same Service, reason and topic are the same
	aboutNode    bool   // and not about a Service
}

const (
	// maxNote is the longest text that the API server accepts in an Event, in bytes.
	maxNote = 1024
	// listedProblems is how many bytes of an Event name problems. The rest is for what follows them.
	listedProblems = 700
	// maxInstance is the longest name of a reporting instance that the API server accepts.
	maxInstance = 128
)

// New returns a recorder. Without a client it does nothing.
func New(client kubernetes.Interface, node string, store *state.Store, log *slog.Logger) *Recorder {
	return &Recorder{
		client: client, node: node, store: store, log: log, queue: noteQueue{wake: make(chan struct{}, 1), notes: state.NewTurns[Event]()},
		raised: map[state.Name][]string{}, blamed: report.Lately{}, dropped: func() {},
	}
}

// CountDropped has a function called for each Event that found no room.
func (e *Recorder) CountDropped(count func()) { e.dropped = count }

// dropPeriod is how often it is logged that Events were dropped.
const dropPeriod = time.Minute

// Run sends Events until the context ends.
func (e *Recorder) Run(ctx context.Context) error {
	if e.client == nil {
		return nil
	}
	look := time.NewTicker(dropPeriod)
	defer look.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.queue.wake:
			if n, ok := e.queue.pop(); ok {
				failing = e.report(e.raise(ctx, n), n, failing)
			}
		case <-look.C:
			e.reportDropped()
		}
	}
}

// report logs the first of several failures. It reports whether this one failed.
func (e *Recorder) report(err error, n Event, failing bool) (failed bool) {
	if err == nil {
		return false
	}
	level := slog.LevelWarn
	if failing {
		level = slog.LevelDebug
	}
	e.log.Log(context.Background(), level, "cannot raise an Event; the problem is in the log and in the metrics only",
		"object", e.object(n), "reason", n.Reason, "error", err)
	return true
}

func (e *Recorder) reportDropped() {
	e.queue.mu.Lock()
	n := e.queue.dropped
	e.queue.dropped = 0
	e.queue.mu.Unlock()
	if n > 0 {
		e.log.Warn("too many Events waited for the API server; some were dropped, and their problems are in the log and in the metrics only",
			"dropped", n, "limit", eventQueue)
	}
}

// raise creates an Event. If another node has created it, there is nothing to do.
func (e *Recorder) raise(ctx context.Context, n Event) error {
	event := e.aboutService(n)
	if n.aboutNode {
		event = e.aboutThisNode(n)
	}
	if event == nil {
		return nil // the Service is gone
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.AnswerPatience)
	defer cancel()
	_, err := e.client.EventsV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// object names what an Event is about, for the log.
func (e *Recorder) object(n Event) string {
	if n.aboutNode {
		return "node " + e.node
	}
	return n.Service.String()
}

func (e *Recorder) aboutService(n Event) *eventsv1.Event {
	svc, _ := e.store.Service(n.Service)
	if svc == nil {
		return nil
	}
	event := e.warning(n.Reason)
	event.ObjectMeta = metav1.ObjectMeta{Namespace: n.Service.Namespace, Name: eventName(n.Service.Name, svc.UID.String(), n.Reason, n.Topic)}
	// "kubectl describe" shows only Events that have the UID.
	event.Regarding = corev1.ObjectReference{
		Kind: "Service", APIVersion: "v1", Namespace: n.Service.Namespace, Name: n.Service.Name, UID: types.UID(svc.UID.String()),
	}
	event.Note = state.Clip(n.Text, maxNote-maxInstance-100) + " (first reported by node " + event.ReportingInstance +
		", other nodes may see the same)"
	return event
}

func (e *Recorder) warning(reason string) *eventsv1.Event {
	return &eventsv1.Event{
		EventTime:           metav1.NowMicro(),
		ReportingController: "verdict",
		ReportingInstance:   e.node[:min(len(e.node), maxInstance)],
		Action:              "Proxy",
		Reason:              reason,
		Type:                corev1.EventTypeWarning,
	}
}

// eventName is the name of an Event about an object, whose name has at most 63 characters. It is the same on every node.
func eventName(object string, parts ...string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, strings.Join(parts, "\x00")+"\x00") // cannot fail
	return fmt.Sprintf("%s.%016x", object, h.Sum64())
}

// Problems raises one Event for each Service that has new kinds of problems.
func (e *Recorder) Problems(changed []state.ObjectProblems) {
	for _, c := range changed {
		if c.Object.Kind != "Service" {
			continue
		}
		before := e.raised[c.Object.Name]
		if len(c.Problems) == 0 {
			delete(e.raised, c.Object.Name)
			continue
		}
		var kinds []string // sorted and each once; how many more problems there are depends on the node, too
		for _, p := range c.Problems {
			if p.More == 0 {
				kinds = append(kinds, kindOf(p))
			}
		}
		slices.Sort(kinds)
		kinds = slices.Compact(kinds)
		e.raised[c.Object.Name] = kinds
		if slices.ContainsFunc(kinds, func(k string) bool { return !slices.Contains(before, k) }) {
			topic := strings.Join(kinds, "\n")
			e.Post(Event{Service: c.Object.Name, Reason: "NotHonored", Text: summary(c.Problems), Topic: topic})
		}
	}
}

// kindOf is a problem without what differs between nodes or from time to time: addresses, numbers and pauses. These are the
// words with a digit, or with a colon inside (fe80::, a pool a:b). The field is the same on every node.
func kindOf(p state.Problem) string {
	words := strings.Fields(p.Reason)
	for i, w := range words {
		if strings.ContainsAny(w, "0123456789") || strings.Contains(strings.TrimRight(w, ":"), ":") {
			words[i] = "*"
		}
	}
	return p.Field + ": " + strings.Join(words, " ")
}

// summary names the first problems and says how many more there are.
func summary(problems []state.Problem) string {
	var text strings.Builder
	more := 0
	for i, p := range problems {
		line := p.Field + ": " + p.Reason
		switch {
		case p.More > 0:
			more += p.More
		case i > 0 && text.Len()+len(line) > listedProblems:
			more++
		case i > 0:
			text.WriteString("; " + line)
		default:
			text.WriteString(line)
		}
	}
	if more > 0 {
		fmt.Fprintf(&text, "; and %d more", more)
	}
	return text.String()
}

// Post puts an Event into the queue. It does not wait.
func (e *Recorder) Post(n Event) {
	if e.client != nil && !e.queue.push(n) {
		e.dropped()
	}
}

// outlierTopic is the time within which the nodes of a cluster raise one Event for the same Service: they notice a dead
// node within seconds.
const outlierTopic = 10 * time.Minute

// Outlier raises an Event when endpoints of a Service begin to fail.
func (e *Recorder) Outlier(episode endpointhealth.Episode, now time.Time) {
	e.Post(Event{
		Service: episode.Service, Reason: episode.Reason, Text: episode.Text, Topic: now.Truncate(outlierTopic).String(),
	})
}

// blamePeriod is how often an Event names the same process. The metrics count each change.
const blamePeriod = time.Hour

// Interfered raises an Event on this Node that names the process which changed the tables or virtual servers.
func (e *Recorder) Interfered(r *report.Repair, outcome string, now time.Time) {
	i, key, what := &r.Interference, r.Interference.Process, "the tables of Verdict: "+r.What()
	if r.Servers {
		key, what = "virtual servers", "virtual servers of Verdict"
	}
	if !e.blamed.Due(key, blamePeriod, now) {
		return
	}
	process := "a process that the kernel does not name"
	if i.Process != "" {
		process = fmt.Sprintf("process %s (pid %d)", i.Process, i.PID)
	}
	e.Post(Event{
		aboutNode: true, Reason: "RulesChanged", Topic: key + now.UTC().Format(time.RFC3339),
		Text: process + " changed " + what + "; the change was " + outcome,
	})
}

// aboutThisNode makes an Event as the kubelet does: it is in the namespace default, and the UID is the Node's name.
func (e *Recorder) aboutThisNode(n Event) *eventsv1.Event {
	event := e.warning(n.Reason)
	event.ObjectMeta = metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: eventName(e.node, n.Reason, n.Topic)}
	event.Regarding = corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: e.node, UID: types.UID(e.node)}
	event.Note = state.Clip(n.Text, maxNote)
	return event
}

// eventQueue limits how many Events wait for the API server. Further problems are only in the log and the metrics.
const eventQueue = 256

// noteQueue holds the Events that wait. Namespaces have turns, and when it is full, the namespace with the most Events
// loses its latest one. So a tenant with thousands of bad Services costs the others no Event. Events on the Node are in
// the namespace "". Any goroutine may use it.
type noteQueue struct {
	wake chan struct{} // delivers a value while Events wait

	mu      sync.Mutex
	notes   state.Turns[Event]
	dropped int // since the log said so
}

// push adds an Event. It returns false if an Event was dropped: this one or that of another namespace.
func (q *noteQueue) push(n Event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	namespace := n.Service.Namespace
	full := q.notes.Len() == eventQueue
	if full {
		q.dropped++
		if !q.notes.MakeRoom(namespace) {
			return false
		}
	}
	q.notes.Push(namespace, n)
	q.signal()
	return !full
}

// pop takes the next Event. It returns false if there is none.
func (q *noteQueue) pop() (n Event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, n, ok = q.notes.Pop()
	if !q.notes.Empty() {
		q.signal()
	}
	return n, ok
}

func (q *noteQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
