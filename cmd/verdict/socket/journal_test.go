package socket

import (
	"fmt"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestTenantHidesNoProblems: the answer about all problems has a limit, and those of one namespace do not use it up.
func TestTenantHidesNoProblems(t *testing.T) {
	j := NewJournal()
	note := func(namespace string, n int) {
		name := state.Name{Namespace: namespace, Name: fmt.Sprint("svc-", n)}
		j.Problems([]state.ObjectProblems{{Object: state.Object{Kind: "Service", Name: name}, Problems: []state.Problem{{Kind: "Service", Object: name, Field: "spec"}, {Kind: "Service", Object: name, Field: "status"}}}})
	}
	for i := range 10 * maxProblems {
		note("tenant", i)
	}
	for i := range 20 {
		note("shop", i)
	}
	list := j.problemsOf("")
	if len(list) != maxProblems {
		t.Errorf("%d problems, want %d", len(list), maxProblems)
	}
	for i := range 20 {
		want := Problem{Kind: "Service", Object: fmt.Sprint("shop/svc-", i), Field: "status"}
		if !slices.Contains(list, want) {
			t.Fatalf("%v is not in the answer", want)
		}
	}
}
