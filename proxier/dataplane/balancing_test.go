package dataplane

import (
	"reflect"
	"testing"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestChooseLooksAtEveryField fails when state.Balancing gains a field that the dataplane forgets.
func TestChooseLooksAtEveryField(t *testing.T) {
	s := Scheduling{Backend: config.BackendHybrid, Available: ipvsctl.Schedulers()}
	base := state.Balancing{Scheduler: "mh", Flags: "mh-port"}
	for path, changed := range fields.Each(base) {
		if reflect.DeepEqual(s.choose(base), s.choose(changed)) {
			t.Errorf("choose ignores %s", path)
		}
	}
}
