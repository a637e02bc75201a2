package dataplane

import (
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/addresses"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Outcome is what became of a transaction.
type Outcome = kernel.Outcome

// Result reports what an Apply or a Tick did.
type Result struct {
	// Outcome and Err are those of the nft transaction, the last one where there were several. When Err is set, the
	// loop has to call Apply again; nothing is forgotten.
	Outcome kernel.Outcome
	Err     error
	// Replan names Services that the loop has to plan and Set again, because the engine of a port changes, or because nft
	// has room for what it could not serve as asked. After an Apply with names here the work is not complete: the loop
	// has to call Apply again.
	Replan []state.Name
	// Failures are changes of IPVS and of addresses that the kernel did not make.
	Failures []Failure

	Full bool // nft wrote both tables as a whole
	More bool // RepairMore has to continue
	// Ended are Services that have stopped waiting; see Waiting. An Apply that is not complete leaves them to a later one.
	Ended   []state.Name
	Leaving bool          // nft has slots of hash tables without pools; each Apply deletes some
	Added   int           // elements
	Deleted int           // elements
	Bytes   int           // of all nft batches
	Encode  time.Duration // spent on what nft does before and after these system calls
	Kernel  time.Duration // spent in system calls that carry nft batches
	// Transactions counts those that went to the kernel, by their Outcome.
	Transactions [kernel.Unknown + 1]int
	Operations   int // on virtual servers and local addresses
	// Changed counts the elements and operations that single Services needed, and Counts all that there were.
	Changed map[state.Name]serviceport.Counts
	Counts  serviceport.Counts
	// Changes print the first changes of each step, for people. Any goroutine may call them, at any time.
	Changes []func() []string
}

// Failure is a change that the kernel did not make. It concerns one service port, or one address.
type Failure = addresses.Failure

// Applied reports whether the kernel has everything that was collected.
func (r *Result) Applied() bool {
	return r.Err == nil && r.Outcome == kernel.Applied && len(r.Replan) == 0
}

// Add sums up two results of the same pass; the outcome is that of the later one.
func (r *Result) Add(later Result) {
	later.Failures = append(r.Failures, later.Failures...)
	later.Full = later.Full || r.Full
	later.Added += r.Added
	later.Deleted += r.Deleted
	later.Counts.Add(r.Counts)
	later.Bytes += r.Bytes
	later.Encode += r.Encode
	later.Kernel += r.Kernel
	for outcome, n := range r.Transactions {
		later.Transactions[outcome] += n
	}
	later.Operations += r.Operations
	for name, n := range r.Changed {
		later.changed(name, n)
	}
	later.Changes = append(r.Changes, later.Changes...)
	later.Changes = later.Changes[:min(len(later.Changes), maxSteps)]
	*r = later
}

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

// keepChanges keeps the changes of a transaction that was sent. Printing takes as long as a small pass, so they are printed when
// somebody reads them.
func (r *Result) keepChanges(done *nft.Result) {
	if done.Bytes > 0 && done.Head != nil {
		r.keep(done.Head(maxChanges))
	}
}

// operated notes operations on virtual servers and local addresses.
func (r *Result) operated(list ipvsctl.Operations) {
	r.Operations += len(list)
	r.Counts[serviceport.Operation] += int32(len(list))
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

// fail adds a failure of IPVS.
func (r *Result) fail(f *ipvsctl.Failure, name state.Name, next string) {
	r.Failures = append(r.Failures, Failure{Service: name, Object: f.Key.String(), Err: f.Err, Next: next})
}

// changed counts changes of a Service.
func (r *Result) changed(name state.Name, n serviceport.Counts) {
	if r.Changed == nil {
		r.Changed = map[state.Name]serviceport.Counts{}
	}
	n.Add(r.Changed[name])
	r.Changed[name] = n
}

// countOperations counts the operations of IPVS.
func (r *Result) countOperations(done *ipvsctl.Result) {
	for key, n := range done.ByName {
		_, port, _ := strings.Cut(key, " ") // see ipvsName
		r.changed(serviceOf(port), serviceport.Counts{serviceport.Operation: int32(n)})
	}
}

// Engine names an engine.
type Engine uint8

// The engines.
const (
	NFT Engine = iota
	IPVS
)

func (e Engine) String() string {
	if e == IPVS {
		return "ipvs"
	}
	return "nft"
}

// idOf returns what identifies a planned port.
func idOf(p *plan.Port) contents.PortID {
	return contents.PortID{Family: p.Family, Name: p.Name}
}

// ipvsName is how IPVS knows a port.
func ipvsName(id contents.PortID) string { return id.Family.String() + " " + id.Name }

// serviceOf returns the Service of a service port. The port may be gone.
func serviceOf(port string) state.Name {
	name, _, _ := strings.Cut(port, ":")
	namespace, name, _ := strings.Cut(name, "/")
	return state.Name{Namespace: namespace, Name: name}
}
