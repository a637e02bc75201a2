package shortform

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
)

// TestSchedulers: a balancer can ask for the same schedulers as a Service.
func TestSchedulers(t *testing.T) {
	field, ok := reflect.TypeFor[Spec]().FieldByName("Scheduler")
	if !ok {
		t.Fatal("Spec has no field Scheduler")
	}
	got, want := strings.Split(field.Tag.Get("enum"), "|"), dataplane.Schedulers()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the field offers %v, the engines have %v", got, want)
	}
}
