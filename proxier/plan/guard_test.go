package plan

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// notPlanned are the fields of the input that planning leaves to others.
var notPlanned = []string{
	"Service.UID",                               // Events name it
	"Service.Short",                             // Problems have its fields
	"Service.Check",                             // package endpointhealth asks
	"Service.AllDown",                           // it matters when no endpoint is good: TestHealthComesBeforeTopology
	"Slices.Name.Name", "Slices.Name.Namespace", // the store needs the name
	"Slices.Service.Name", "Slices.Service.Namespace", // the store has put the slice beside its Service
	"Slices.Trigger",         // the loop measures with it
	"Slices.Endpoints.Hints", // an empty value is no hint
}

// TestPlanLooksAtEveryField changes one field of the input at a time. Every field must change the plan of at least one
// Service. So the test fails when a Service, a slice or the environment gains a field that planning forgets.
func TestPlanLooksAtEveryField(t *testing.T) {
	type input struct {
		Service *state.Service
		Slices  []*state.Slice
		Env     *Environment
	}
	index := regexp.MustCompile(`\[\w+\]`)
	matters := map[string]bool{}
	for i, sl := range []*state.Slice{
		slice("a", "10.0.0.1 @node-a", "10.0.0.2"),
		slice("a", "10.0.0.1 @node-a", "10.0.0.2"),
		slice("a", "10.0.0.1 draining", "10.0.0.2 gone"),
		slice("a", "10.0.0.1 zone=zone-1", "10.0.0.2 zone=zone-2"),
		slice("a", "10.0.0.1 node=node-a", "10.0.0.2 node=node-b"),
	} {
		base := input{Service: completeService(), Slices: []*state.Slice{sl}, Env: environment()}
		base.Service.ExternalLocal, base.Env.PodCIDRs = i > 0, prefixes("10.0.0.0/24")
		sl.Endpoints[1].Node, sl.Endpoints[1].Zone = "another", "y"
		if i == 0 {
			base.Env.ServiceCIDRs = prefixes("10.0.0.2/32")
		}
		want := planned(base.Service, base.Slices, base.Env)
		for path, changed := range fields.Each(base) {
			path = index.ReplaceAllString(path, "")
			differs := !reflect.DeepEqual(planned(changed.Service, changed.Slices, changed.Env), want)
			matters[path] = matters[path] || differs
		}
	}
	for _, path := range slices.Sorted(maps.Keys(matters)) {
		if matters[path] == slices.Contains(notPlanned, path) {
			t.Errorf("%s changes a plan: %t; the list notPlanned says otherwise", path, matters[path])
		}
	}
}

// completeService has a value in every field. Its source ranges allow the node.
func completeService() *state.Service {
	return service(func(s *state.Service) {
		everything(s)
		s.SourceRanges = prefixes("192.168.0.1/32 fd00:9::/32")
		s.HealthCheckNodePort, s.ExternalLocal = 32000, true
		s.Weights = []state.NamedWeight{{Name: there, Weight: 3}, {Name: "x", Weight: 5}, {Name: "y", Weight: 7}} // "x" is what a zone becomes
	})
}
