package events

import (
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// blamePeriod is how often an Event names the same process. The metrics count each change.
const blamePeriod = time.Hour

// Interfered raises an Event on this Node that names the process which changed the tables or virtual servers.
func (e *Recorder) Interfered(r *report.Repair, outcome string, now time.Time) {
	i, key, what := &r.Interference, r.Interference.Process, "the tables of Verdict: "+r.What()
	if r.Servers {
		key, what = "virtual servers", "virtual servers of Verdict"
	}
	if now.Sub(e.blamed[key]) < blamePeriod {
		return
	}
	for process, when := range e.blamed { // names come and go
		if now.Sub(when) >= blamePeriod {
			delete(e.blamed, process)
		}
	}
	e.blamed[key] = now
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
	h := fnv.New64a()
	_, _ = h.Write([]byte(n.Reason + "\x00" + n.Topic)) // cannot fail
	event := e.warning(n.Reason)
	event.ObjectMeta = metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%016x", e.node, h.Sum64())}
	event.Regarding = corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: e.node, UID: types.UID(e.node)}
	event.Note = state.Clip(n.Text, maxNote)
	return event
}
