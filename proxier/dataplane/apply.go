package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TickPeriod is how often Tick wants to be called.
const TickPeriod = time.Second

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

	Full    bool          // nft wrote both tables as a whole
	More    bool          // Look has to continue
	Added   int           // elements
	Deleted int           // elements
	Bytes   int           // of all nft batches
	Encode  time.Duration // spent on what nft does before and after these system calls
	Kernel  time.Duration // spent in system calls that carry nft batches
	// Transactions counts those that went to the kernel, by their Outcome.
	Transactions [kernel.Unknown + 1]int
	Operations   int // on virtual servers and local addresses
	// Changed counts the elements and operations that single Services needed, of those with many.
	Changed map[state.Name]int
	// Changes print the first changes of each step, for people. Any goroutine may call them, at any time.
	Changes []func() []string
}

// Failure is a change that the kernel did not make. It concerns one service port, or one address.
type Failure struct {
	Service state.Name // the zero Name: no Service wants the object any more, or several do
	Object  string     // the virtual server, or the address
	Err     error      // says operation and cause
	Next    string
}

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

// Apply hands all collected changes to the kernel, in the order that the package comment explains.
func (d *Dataplane) Apply() Result {
	gone := d.removeAddresses()
	r := d.applyAll()
	if r.Err == nil && len(r.Replan) == 0 {
		r.Replan = d.withRoom()
	}
	r.Failures = append(r.Failures, gone...)
	if r.Applied() {
		r.Failures = append(r.Failures, d.addAddresses()...)
	}
	return r
}

// applyAll hands the changes to both engines.
func (d *Dataplane) applyAll() Result {
	var r Result
	if d.ipvs == nil {
		d.applyRules(&r)
		return r
	}
	guarded, err := d.ruleset.Guard(d.ipvs.Coming())
	if err != nil {
		return Result{Outcome: kernel.Rejected, Err: err}
	}
	if guarded && !d.addServers(&r) {
		return r
	}
	if d.applyRules(&r); r.Err != nil {
		return r
	}
	if !guarded && !d.addServers(&r) { // there was no table, so nothing is moving away from nft
		return r
	}
	d.removeServers(&r)
	return r
}

// note adds what a call of the nft engine did.
func (d *Dataplane) note(r *Result, call func() (nft.Result, error)) {
	start := time.Now()
	done, err := call()
	r.Encode += time.Since(start) - done.InKernel
	if done.Bytes > 0 {
		r.Transactions[done.Outcome]++
	}
	for _, id := range done.Room {
		if name, still := d.limited[id]; still {
			d.room[name] = true
		}
	}
	r.Outcome, r.Err = done.Outcome, err
	r.Full = r.Full || done.Full
	r.More = done.More
	r.Added += done.Added
	r.Deleted += done.Deleted
	r.Bytes += done.Bytes
	r.Kernel += done.InKernel
	for id, n := range done.Changed {
		r.changed(serviceOf(id.Name), n)
	}
	r.keepChanges(&done)
}

// addServers has IPVS serve what is new. It reports whether IPVS took everything; otherwise Replan names the Services
// whose ports nft has to serve.
func (d *Dataplane) addServers(r *Result) bool {
	now := time.Now()
	done, _ := d.ipvs.Add(now) // the error sums up the failures
	r.operated(done.Operations)
	r.countOperations(&done)
	// Other ports of an address that is not local answer as on any other node.
	d.ruleset.Unguard(done.Released())
	d.ruleset.Unguard(done.NotLocal)
	refused := map[state.Name]bool{}
	for i := range done.Failures {
		f := &done.Failures[i]
		if name, ok := d.ipvs.services[f.Name]; ok { // otherwise no Service wants it any more
			r.fail(f, name, d.ipvs.refuse(f, now))
			refused[name] = true
		}
	}
	clear(d.ipvs.retrying)
	r.Replan = slices.AppendSeq(r.Replan, maps.Keys(refused))
	return len(refused) == 0
}

func (r *Result) fail(f *ipvsctl.Failure, name state.Name, next string) {
	r.Failures = append(r.Failures, Failure{Service: name, Object: f.Key.String(), Err: f.Err, Next: next})
}

// removeServers takes back what IPVS no longer serves. nft serves it now, or nobody does.
func (d *Dataplane) removeServers(r *Result) {
	done, _ := d.ipvs.Remove(time.Now()) // the error sums up the failures
	d.noteRemoved(r, done)
}

// noteRemoved reports a removal and takes the guards off addresses that are no longer local.
func (d *Dataplane) noteRemoved(r *Result, done ipvsctl.Result) {
	r.operated(done.Operations)
	r.countOperations(&done)
	for i := range done.Failures {
		f := &done.Failures[i]
		r.fail(f, d.ipvs.services[f.Name], fmt.Sprintf("it takes no new connections; tried again every %s", TickPeriod))
	}
	released := done.Released()
	if len(released) == 0 {
		return
	}
	d.ruleset.Unguard(released)
	if d.applyRules(r); r.Err != nil {
		r.Err = fmt.Errorf("take the guards off %s: %w", addressList(released), r.Err)
	}
}

// addressList names the first address and counts the others.
func addressList(addrs []netip.Addr) string {
	if len(addrs) == 1 {
		return addrs[0].String()
	}
	return fmt.Sprintf("%s and %d more addresses", addrs[0], len(addrs)-1)
}

// Found is what Check found.
type Found struct {
	Tables  Interference // Repair undoes it
	Servers bool         // virtual servers differ
}

// Check compares the kernel with what Apply wrote. If repair is true, the next Apply repairs virtual servers.
func (d *Dataplane) Check(repair bool) (found Found, err error) {
	found.Tables, err = d.ruleset.Check()
	if d.ipvs == nil {
		return found, err
	}
	intact, ipvsErr := d.ipvs.Intact(repair)
	if ipvsErr != nil {
		ipvsErr = fmt.Errorf("read virtual servers: %w", ipvsErr)
	}
	found.Servers = ipvsErr == nil && !intact
	return found, errors.Join(err, ipvsErr)
}

// Interference is what another process did to the tables.
type Interference = kernel.Interference

// Repair undoes an interference. It writes nothing that was Set since the last Apply unless the tables have to be
// written as a whole. If the result says that there is More, Look continues.
func (d *Dataplane) Repair(i Interference) Result {
	var r Result
	d.note(&r, func() (nft.Result, error) { return d.ruleset.Repair(i) })
	return r
}

// Look compares the next part of both tables with what Apply wrote, and undoes what it finds.
func (d *Dataplane) Look() Result { return d.Repair(Interference{}) }

// Tick continues drains, removals and announcements, and names the Services whose ports an engine is to be offered again.
func (d *Dataplane) Tick() Result {
	now := time.Now()
	r := Result{Replan: append(d.withRoom(), d.quarantine.released(now)...)} // a repair may have made room
	if d.addresses != nil {
		r.Failures = failuresOf(d.addresses.Tick(now))
	}
	if d.ipvs == nil {
		return r
	}
	done, _ := d.ipvs.Tick(now) // the error sums up the failures
	d.noteRemoved(&r, done)
	r.Replan = append(r.Replan, d.ipvs.due(now)...)
	return r
}
