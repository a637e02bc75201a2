package dataplane

import (
	"strings"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// changed counts changes of a Service.
func (r *Result) changed(name state.Name, n int) {
	if r.Changed == nil {
		r.Changed = map[state.Name]int{}
	}
	r.Changed[name] += n
}

// countOperations counts the operations of IPVS.
func (r *Result) countOperations(done *ipvsctl.Result) {
	for key, n := range done.ByName {
		_, port, _ := strings.Cut(key, " ") // see portKey.String
		r.changed(serviceOf(port), n)
	}
}

// serviceOf returns the Service of a service port. The port may be gone.
func serviceOf(port string) state.Name {
	name, _, _ := strings.Cut(port, ":")
	namespace, name, _ := strings.Cut(name, "/")
	return state.Name{Namespace: namespace, Name: name}
}
