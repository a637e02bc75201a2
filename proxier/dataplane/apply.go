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
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TickPeriod is how often Tick wants to be called.
const TickPeriod = time.Second

// Apply hands all collected changes to the kernel, in the order that the package comment explains.
func (d *Dataplane) Apply() Result {
	var gone []Failure
	if d.addresses != nil {
		gone = d.addresses.Remove() // before the rules stop serving them
	}
	r := d.applyAll(false)
	if r.Err == nil && len(r.Replan) == 0 {
		r.Replan = d.withRoom()
	}
	r.Failures = append(r.Failures, gone...)
	if d.addresses != nil && r.Applied() && len(d.waiting.services) == 0 {
		r.Failures = append(r.Failures, d.addresses.Add()...)
		r.Replan = d.addresses.Changed()
	}
	if r.Applied() {
		r.Ended = d.waiting.takeEnded()
	}
	return r
}

// ApplyPiece hands over what was Set so far, although other Services follow. So what no Service asks for stays, and the host gets
// no addresses yet. The caller Sets the Services in Replan again before the next call.
func (d *Dataplane) ApplyPiece() Result {
	r := d.applyAll(true)
	d.ruleset.SetGlobals(d.env.Globals) // no service port of the next piece is postponed: a Service would refuse its other ports
	return r
}

// applyAll hands the changes to both engines.
func (d *Dataplane) applyAll(more bool) Result {
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
	if more {
		return r
	}
	done, _ := d.ipvs.Remove(time.Now()) // the error sums up the failures; nft serves now what IPVS does not, or nobody does
	d.noteRemoved(&r, done)
	return r
}

// maxAtOnce bounds how many service ports one Apply puts in quarantine. If the kernel still refuses something, the loop
// calls Apply again later.
const maxAtOnce = 16

// applyRules hands the changes to nft. A service port that the kernel refuses goes into quarantine, and the others are
// tried again at once.
func (d *Dataplane) applyRules(r *Result) {
	for range maxAtOnce {
		d.note(r, d.ruleset.Apply)
		if refused, ok := errors.AsType[*nft.RefusedError](r.Err); !ok || !d.isolate(refused, r) {
			break
		}
	}
	if r.Err == nil && r.Outcome == kernel.Applied {
		d.quarantine.end()
	}
}

// isolate takes a service port away from the nft engine, and has its Service planned again, which reports the Problem.
func (d *Dataplane) isolate(refused *nft.RefusedError, r *Result) bool {
	service, found := d.serviceOf(refused.Port)
	if !found {
		return false
	}
	d.quarantine.add(service, refused)
	d.ruleset.Delete(refused.Port.Family, refused.Port.Name)
	r.Replan = append(r.Replan, service)
	return true
}

func (d *Dataplane) serviceOf(id contents.PortID) (state.Name, bool) {
	for name, s := range d.services {
		if slices.ContainsFunc(s.ports, func(p servedPort) bool { return p.PortID == id }) {
			return name, true
		}
	}
	return state.Name{}, false
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
		if name := serviceOf(id.Name); d.services[name] != nil {
			d.room[name] = true
		}
	}
	for service, waits := range done.Waits {
		d.waiting.Set(serviceOf(service), waits)
	}
	r.Outcome, r.Err = done.Outcome, err
	r.Full = r.Full || done.Full
	r.More, r.Leaving = done.More, done.Leaving
	r.Added += done.Added
	r.Deleted += done.Deleted
	r.Counts.Add(done.Counts)
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
	d.ruleset.Unguard(done.Released)
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

// noteRemoved reports a removal and takes the guards off addresses that are no longer local.
func (d *Dataplane) noteRemoved(r *Result, done ipvsctl.Result) {
	r.operated(done.Operations)
	r.countOperations(&done)
	for i := range done.Failures {
		f := &done.Failures[i]
		r.fail(f, d.ipvs.services[f.Name], fmt.Sprintf("it takes no new connections; tried again every %s", TickPeriod))
	}
	if len(done.Released) == 0 {
		return
	}
	d.ruleset.Unguard(done.Released)
	if d.applyRules(r); r.Err != nil {
		r.Err = fmt.Errorf("take the guards off %s: %w", addressList(done.Released), r.Err)
	}
}

// addressList names the first address and counts the others.
func addressList(addrs []netip.Addr) string {
	if len(addrs) == 1 {
		return addrs[0].String()
	}
	return fmt.Sprintf("%s and %d more addresses", addrs[0], len(addrs)-1)
}

// Found is what Compare found.
type Found struct {
	Tables  Interference // Repair undoes it
	Servers bool         // virtual servers differ
}

// Compare compares the kernel with what Apply wrote. If repair is true, the next Apply repairs virtual servers.
func (d *Dataplane) Compare(repair bool) (found Found, err error) {
	found.Tables, err = d.ruleset.FindInterference()
	if d.ipvs == nil {
		return found, err
	}
	intact, ipvsErr := d.ipvs.Intact(repair)
	if ipvsErr != nil {
		ipvsErr = fmt.Errorf("compare IPVS: %w", ipvsErr)
	}
	found.Servers = !intact
	return found, errors.Join(err, ipvsErr)
}

// Repair undoes an interference. It writes nothing that was Set since the last Apply unless the tables have to be
// written as a whole. If the result says that there is More, RepairMore continues.
func (d *Dataplane) Repair(i Interference) Result {
	var r Result
	d.note(&r, func() (nft.Result, error) { return d.ruleset.Repair(i) })
	return r
}

// RepairMore compares the next part of both tables with what Apply wrote, and undoes what it finds.
func (d *Dataplane) RepairMore() Result {
	var r Result
	d.note(&r, d.ruleset.RepairMore)
	return r
}

// Tick continues drains, removals and announcements, and names the Services whose ports an engine is to be offered again.
func (d *Dataplane) Tick() Result {
	now := time.Now()
	r := Result{Replan: append(d.withRoom(), d.quarantine.released(now)...)} // a repair may have made room
	if d.addresses != nil {
		r.Failures = d.addresses.Tick(now)
		r.Replan = append(r.Replan, d.addresses.Changed()...)
	}
	if d.devices != nil && d.env.FastPath > 0 {
		if err := d.follow(d.env.fastPathDevices(d.devices())); err != nil {
			r.Failures = append(r.Failures, Failure{Object: "the devices of the fast path", Err: err, Next: "their connections stay on the rules; tried again every second"})
		}
	}
	if d.ipvs == nil {
		return r
	}
	done, _ := d.ipvs.Tick(now) // the error sums up the failures
	d.noteRemoved(&r, done)
	r.Replan = append(r.Replan, d.ipvs.due(now)...)
	return r
}
