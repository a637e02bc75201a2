package runner

import (
	"reflect"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// TestEveryVerbIsImplemented expects an implementation for the steps of every verb, and no other implementations.
func TestEveryVerbIsImplemented(t *testing.T) {
	missing := map[reflect.Type]string{}
	for _, verb := range scenario.Verbs() {
		for _, example := range verb.Examples {
			missing[reflect.TypeOf(steps(t, example)[0].Do)] = verb.Name
		}
	}
	for _, i := range implementations() {
		if _, ok := missing[i.step]; !ok {
			t.Errorf("%v is implemented twice, or no verb gives steps of this type", i.step)
		}
		delete(missing, i.step)
	}
	for step, verb := range missing {
		t.Errorf("verb %s: %v has no entry in implementations", verb, step)
	}
	if err := bed(Options{}).step("a string is not a step"); err == nil {
		t.Error("a step without an implementation is not an error")
	}
}
