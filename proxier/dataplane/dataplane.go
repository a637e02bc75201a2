package dataplane

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Interference is what another process did to the tables.
type Interference = kernel.Interference

// Ruleset is the nft engine. nft.Engine documents the methods.
type Ruleset interface {
	Set(*contents.Port) error
	Delete(program.Family, string)
	SetGlobals(contents.Globals)
	Apply() (nft.Result, error)
	FindInterference() (kernel.Interference, error)
	Repair(kernel.Interference) (nft.Result, error)
	RepairMore() (nft.Result, error)
	Guard([]netip.Addr) (bool, error)
	Unguard([]netip.Addr)
}

// Options configure a Dataplane.
type Options struct {
	Ruleset Ruleset
	// Balancer is nil when IPVS is not used.
	Balancer   Balancer
	Scheduling Scheduling
	// Addresses is nil when Verdict has nothing to do with the addresses of the host.
	Addresses Addresses
	// Devices lists those of the host, and FollowDevices gives some of them to the fast path; nil: there is none.
	Devices       func() []state.Device
	FollowDevices func([]string) error
}

// Dataplane keeps both engines equal to planned Services. The package comment has its contract.
type Dataplane struct {
	ruleset Ruleset
	ipvs    *ipvsPorts // nil when IPVS is not used
	Scheduling
	env        Environment
	hasEnv     bool
	services   map[state.Name]*served
	quarantine quarantine
	room       map[state.Name]bool // those that nft served less well than asked for, and for which there is room now
	waiting    Waiting
	totals     AllTotals
	addresses  Addresses // nil: nobody wants any
	devices    func() []state.Device
	follow     func([]string) error
	slow       sync.Map // by contents.PortID, why the connections of some ports stay on the rules; read by other goroutines
}

// New returns a Dataplane that has written nothing yet.
func New(o Options) *Dataplane {
	return &Dataplane{
		ruleset:    o.Ruleset,
		ipvs:       newIPVS(o.Balancer),
		Scheduling: o.Scheduling,
		services:   map[state.Name]*served{},
		quarantine: quarantine{},
		room:       map[state.Name]bool{},
		addresses:  o.Addresses,
		devices:    o.Devices,
		follow:     o.FollowDevices,
	}
}

// Totals counts what the engines serve once everything that was Set is applied.
func (d *Dataplane) Totals() AllTotals { return d.totals }

// Waiting has the Services that wait.
func (d *Dataplane) Waiting() *Waiting { return &d.waiting }

// SetEnvironment takes over what all Services share. It returns the Services whose virtual servers may now stand at
// other addresses: the loop has to plan and Set them before the next Apply.
func (d *Dataplane) SetEnvironment(env Environment) (replan []state.Name) {
	env.IPVS = d.ipvs != nil
	if d.hasEnv && reflect.DeepEqual(env, d.env) {
		return nil
	}
	if d.ipvs != nil && d.hasEnv && !env.sameAddresses(&d.env) {
		replan = d.ipvs.everyone()
	}
	d.env, d.hasEnv = env, true
	if d.addresses != nil {
		d.addresses.Withdraw(env.Withdrawn)
	}
	d.ruleset.SetGlobals(env.Globals)
	return replan
}

// Set makes a Service look as planned. It notes in each planned frontend which engine serves it
// (plan.Frontend.IPVS). The Problems name what cannot be served as asked.
func (d *Dataplane) Set(planned *plan.Service) []state.Problem {
	var problems []state.Problem
	kept := keptOut{list: state.ProblemList{Object: state.Object{Kind: "Service", Name: planned.Name}}}
	old, next := d.services[planned.Name], newServed(planned)
	former := old.formerNames(next)
	var hash hashBudget
	for i := range planned.Ports {
		port, p := &planned.Ports[i], &next.ports[i]
		scheduler, some := d.setPort(planned, p.PortID, former[p.PortID], port, &kept, &hash)
		problems = append(problems, some...)
		p.count = countOf(port, scheduler)
		if d.quarantine.holds(p.PortID) {
			p.count.withoutRules()
		}
	}
	d.replace(planned.Name, old, next)
	if d.addresses != nil {
		wanted := addressesOf(planned, d.quarantine)
		d.addresses.Set(planned.Name, wanted)
		problems = append(problems, d.missing(planned, wanted)...)
	}
	return append(problems, kept.list.Problems()...)
}

// setPort hands one port to the engines. A port that gets another name had the former one. It returns the index of the scheduler that the port gets.
func (d *Dataplane) setPort(
	planned *plan.Service, id contents.PortID, former string, port *plan.Port, kept *keptOut, hash *hashBudget,
) (scheduler uint8, problems []state.Problem) {
	name := planned.Name
	m := d.balance(name, id, port)
	if m.ipvs && port.SlowPath == "" {
		port.SlowPath = "IPVS serves the port"
	}
	d.noteSlowPath(id, port.SlowPath)
	wanted := rules(port, &m)
	if d.env.Fleet {
		wanted.Answers, wanted.Created = answers(port, &m), planned.Created.UnixNano()
	}
	dropUnusedPools(wanted)
	if m.ipvs {
		kept.note(port, &d.env)
		wanted = nftShare(port, &m, &d.env)
	}
	if !hash.take(wanted) {
		wanted.Method = program.Random
		m.note(fmt.Sprintf("the hash tables of the Service would need more than %d slots in nft (%s); "+
			"the endpoints of port %s are picked at random, by weight", maxHashSlots, wanted.Family, port.Name))
	}
	if m.problem != "" {
		problems = append(problems, state.Problem{Kind: "Service", Object: name, Field: "metadata.annotations", Reason: m.problem})
	}
	scheduler = m.index(wanted.Method)
	if problem, kept := d.quarantine.keepsBack(id); kept {
		d.ruleset.Delete(id.Family, id.Name)
		return scheduler, append(problems, state.Problem{Kind: "Service", Object: name, Field: "spec.ports", Reason: problem})
	}
	wanted.Formerly = former
	if err := d.ruleset.Set(wanted); err != nil {
		problems = append(problems, state.Problem{Kind: "Service", Object: name, Field: "spec.ports", Reason: err.Error()})
	}
	return scheduler, problems
}

// balance chooses how a port is served, and hands it to IPVS where IPVS serves it. When IPVS cannot, nft serves the
// port by the nearest method.
func (d *Dataplane) balance(name state.Name, id contents.PortID, port *plan.Port) method {
	m := d.methodOf(port)
	if m.ipvs && ranged(port) {
		// An IPVS service has one port, all ports of an address together with persistence, or a packet mark. Marks belong to
		// other software (config/README.md).
		m.ipvs = false
		m.approximate("which has no ranges of ports")
	}
	if d.ipvs == nil {
		return m
	}
	if !m.ipvs {
		d.ipvs.forget(id)
		return m
	}
	key := ipvsName(id)
	d.ipvs.services[key] = name
	d.env.divide(port)
	for i := range port.Frontends {
		f := &port.Frontends[i]
		f.Unchanged = f.IPVS && m.withoutNAT() && fromOutside(f)
	}
	servers := virtualServers(port, &m, &d.env)
	if reason := d.ipvs.offer(name, key, servers); reason != "" {
		m.ipvs = false
		for i := range port.Frontends {
			port.Frontends[i].IPVS, port.Frontends[i].Unchanged = false, false
		}
		if reason != untilNextTick {
			m.note(reason + "; nft serves this port")
		}
		d.ipvs.Delete(key)
	}
	return m
}

// withRoom lists the Services with ports that nft serves less well than asked for, and could serve better now.
func (d *Dataplane) withRoom() []state.Name {
	names := slices.Collect(maps.Keys(d.room))
	clear(d.room)
	return names
}

// Delete removes a Service. Deleting an unknown Service changes nothing.
func (d *Dataplane) Delete(name state.Name) {
	if old := d.services[name]; old != nil {
		d.replace(name, old, nil)
		if d.addresses != nil {
			d.addresses.Set(name, nil)
		}
	}
}

// replace remembers what a Service has now and removes the ports that it had before; nil stands for none.
func (d *Dataplane) replace(name state.Name, old, next *served) {
	if old != nil {
		for _, p := range old.except(next) {
			d.ruleset.Delete(p.Family, p.Name)
			d.ipvs.forget(p.PortID)
			delete(d.quarantine, p.PortID)
			d.slow.Delete(p.PortID)
		}
		for i := range old.ports {
			d.totals.add(&old.ports[i].count, -1)
		}
	}
	if next == nil {
		delete(d.services, name)
		return
	}
	for i := range next.ports {
		d.totals.add(&next.ports[i].count, 1)
	}
	d.services[name] = next
}

// noteSlowPath remembers why a port stays on the rules while others need not.
func (d *Dataplane) noteSlowPath(id contents.PortID, why string) {
	if d.env.FastPath == 0 || why == "" {
		d.slow.Delete(id)
		return
	}
	d.slow.Store(id, why)
}

// EachOnRules names the ports of which no connection takes the fast path, and why. Any goroutine may call it.
func (d *Dataplane) EachOnRules(each func(id contents.PortID, why string)) {
	for id, why := range d.slow.Range {
		each(id.(contents.PortID), why.(string))
	}
}
