package dataplane

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Ruleset is the nft engine. nft.Engine documents the methods.
type Ruleset interface {
	Set(*contents.Port) error
	Delete(program.Family, string)
	SetGlobals(contents.Globals)
	Apply() (nft.Result, error)
	Check() (kernel.Interference, error)
	Repair(kernel.Interference) (nft.Result, error)
	Guard([]netip.Addr) (bool, error)
	Unguard([]netip.Addr)
}

// Balancer is the IPVS engine. ipvsctl.Engine documents the methods.
type Balancer interface {
	Set(name string, servers []ipvsctl.VirtualServer) error
	Delete(name string)
	Obstacle(servers []ipvsctl.VirtualServer) error
	Coming() []netip.Addr
	Add(now time.Time) (ipvsctl.Result, error)
	Remove(now time.Time) (ipvsctl.Result, error)
	Tick(now time.Time) (ipvsctl.Result, error)
	Intact(repair bool) (bool, error)
}

// Options configure a Dataplane.
type Options struct {
	Ruleset Ruleset
	// Balancer is nil when IPVS is not used.
	Balancer   Balancer
	Scheduling Scheduling
	// Addresses is nil when Verdict has nothing to do with the addresses of the host.
	Addresses Addresses
}

// Dataplane keeps both engines equal to planned Services. The package comment has its contract.
type Dataplane struct {
	ruleset    Ruleset
	ipvs       *ipvs // nil when IPVS is not used
	scheduling Scheduling
	env        Environment
	hasEnv     bool
	translator translator
	services   map[state.Name]*served
	limited    map[contents.PortID]state.Name // the ports that nft serves less well than asked for, or that may become so
	quarantine quarantine
	room       map[state.Name]bool // those of them for which there is room now
	totals     AllTotals
	addresses  Addresses // nil: nobody wants any
}

// New returns a Dataplane that has written nothing yet.
func New(o Options) *Dataplane {
	return &Dataplane{
		ruleset:    o.Ruleset,
		ipvs:       newIPVS(o.Balancer),
		scheduling: o.Scheduling,
		services:   map[state.Name]*served{},
		limited:    map[contents.PortID]state.Name{},
		quarantine: quarantine{},
		room:       map[state.Name]bool{},
		addresses:  o.Addresses,
	}
}

// Totals counts what the engines serve once everything that was Set is applied.
func (d *Dataplane) Totals() AllTotals { return d.totals }

// SetEnvironment takes over what all Services share. It returns the Services whose virtual servers may now stand at
// other addresses: the loop has to plan and Set them before the next Apply.
func (d *Dataplane) SetEnvironment(env Environment) (replan []state.Name) {
	if d.hasEnv && env.equal(&d.env) {
		return nil
	}
	if d.ipvs != nil && d.hasEnv && !env.sameAddresses(&d.env) {
		replan = d.ipvs.everyone()
	}
	d.env, d.hasEnv = env, true
	if d.addresses != nil {
		d.addresses.Withdraw(env.Withdrawn)
	}
	d.ruleset.SetGlobals(env.globals(d.ipvs != nil))
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
		scheduler, some := d.setPort(planned, p.portKey, former[p.portKey], port, &kept, &hash)
		problems = append(problems, some...)
		p.count = countOf(port, scheduler)
		if d.quarantine.holds(p.portKey) {
			p.count.withoutRules()
		}
	}
	d.replace(planned.Name, old, next)
	d.wantAddresses(planned)
	return append(problems, kept.list.Problems()...)
}

// setPort hands one port to the engines. A port that gets another name had the former one. It returns the index of the scheduler that the port gets.
func (d *Dataplane) setPort(
	planned *plan.Service, key portKey, former string, port *plan.Port, kept *keptOut, hash *hashBudget,
) (scheduler uint8, problems []state.Problem) {
	name := planned.Name
	m := d.balance(name, key, port)
	wanted := d.translator.port(port, &m)
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
	delete(d.limited, key.id())
	scheduler = m.index(wanted.Method)
	if problem, kept := d.quarantine.keepsBack(key); kept {
		d.ruleset.Delete(key.family, key.name)
		return scheduler, append(problems, state.Problem{Kind: "Service", Object: name, Field: "spec.ports", Reason: problem})
	}
	wanted.Formerly = former
	err := d.ruleset.Set(wanted)
	if err != nil || wanted.Answers.IsValid() {
		d.limited[key.id()] = name
	}
	if err != nil {
		problems = append(problems, state.Problem{Kind: "Service", Object: name, Field: "spec.ports", Reason: err.Error()})
	}
	return scheduler, problems
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
		d.wantAddresses(&plan.Service{Name: name})
	}
}

// replace remembers what a Service has now and removes the ports that it had before; nil stands for none.
func (d *Dataplane) replace(name state.Name, old, next *served) {
	if old != nil {
		for _, p := range old.except(next) {
			d.ruleset.Delete(p.family, p.name)
			d.ipvs.forget(p.portKey)
			delete(d.limited, p.id())
			delete(d.quarantine, p.id())
		}
		d.totals.add(old, -1)
	}
	if next == nil {
		delete(d.services, name)
		return
	}
	d.totals.add(next, 1)
	d.services[name] = next
}
