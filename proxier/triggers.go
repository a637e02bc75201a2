package proxier

import (
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Trigger is the time at which the endpoint controller noted a change.
type Trigger struct {
	Family state.Family
	At     time.Time
}

// triggers collects trigger times that are new, until the kernel has the changes. Changes from before the start are
// left out: the proxy did not delay them.
type triggers struct {
	started time.Time
	latest  map[state.Name]time.Time // of Services with slices that carry one
	pending []Trigger
}

func newTriggers(started time.Time) triggers {
	return triggers{started: started, latest: map[state.Name]time.Time{}}
}

// note collects the new trigger times of a Service's slices.
func (t *triggers) note(name state.Name, slices []*state.Slice) {
	known := t.latest[name]
	latest := known
	for _, s := range slices {
		if s.Trigger.After(known) && s.Trigger.After(t.started) {
			t.pending = append(t.pending, Trigger{Family: s.Family, At: s.Trigger})
		}
		if s.Trigger.After(latest) {
			latest = s.Trigger
		}
	}
	if latest.After(known) {
		t.latest[name] = latest
	}
}

func (t *triggers) forget(name state.Name) { delete(t.latest, name) }

// take returns what was collected and starts anew.
func (t *triggers) take() []Trigger {
	pending := t.pending
	t.pending = nil
	return pending
}
