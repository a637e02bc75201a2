package dataplane

import (
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// maxChanges is how many changes of a transaction are kept for people to read, and maxSteps how many transactions of a
// pass.
const (
	maxChanges = 40
	maxSteps   = 8
)

// keep adds a step to what people can read.
func (r *Result) keep(lines func() []string) {
	if len(r.Changes) < maxSteps {
		r.Changes = append(r.Changes, lines)
	}
}

// keepChanges keeps the changes of a transaction that was sent. Printing takes as long as a small pass, so a small
// transaction is printed when somebody reads it. A large one is printed at once, because it would fill the memory.
func (r *Result) keepChanges(done *nft.Result) {
	switch head := done.Head; {
	case done.Bytes == 0 || head == nil:
	case done.Added+done.Deleted <= maxChanges:
		r.keep(func() []string { return head(maxChanges) })
	default:
		lines := head(maxChanges)
		r.keep(func() []string { return lines })
	}
}

// operated notes operations on virtual servers and local addresses.
func (r *Result) operated(list ipvsctl.Operations) {
	r.Operations += len(list)
	if len(list) == 0 {
		return
	}
	some := slices.Clone(list[:min(len(list), maxChanges)])
	r.keep(func() (lines []string) {
		for _, o := range some {
			lines = append(lines, o.String())
		}
		return lines
	})
}

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
