package proxier

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Dataplane is the kernel's side as the loop sees it. Package dataplane documents the contract.
type Dataplane interface {
	SetEnvironment(dataplane.Environment) (replan []state.Name)
	Set(*plan.Service) []state.Problem
	Delete(state.Name)
	Apply() dataplane.Result
	Check(repair bool) (dataplane.Found, error)
	Repair(dataplane.Interference) dataplane.Result
	Look() dataplane.Result
	Tick() dataplane.Result
	Totals() dataplane.AllTotals
	Slots(*plan.Port) (weights int, tables map[string]int)
}

// Options configure the loop.
type Options struct {
	Settings  *config.Settings
	Store     *state.Store
	Dataplane Dataplane
	Flows     Flows
	// Former are frontends of an earlier process that have UDP flows.
	Former []conntrack.Frontend
	// Adopted are frontends whose UDP flows IPVS carries on for an earlier proxy, whatever serves them now.
	Adopted []conntrack.Frontend
	// Primary returns the host's own main addresses. The loop asks for them when there is no Node object.
	Primary func() ([]netip.Addr, error)
	// APIServers are the addresses of API servers that the configuration names. The endpoints of the Service
	// default/kubernetes are others.
	APIServers []netip.AddrPort
	// Interference delivers what other processes do to the tables; nil when nobody watches. Check finds some of it
	// then.
	Interference <-chan dataplane.Interference
	// Reconfigured delivers settings that replace those before; nil: they never change. The loop takes over
	// what makes the environment of all Services, and MinSyncPeriod. The rest must be the same as before.
	Reconfigured <-chan *config.Settings
	// NoIPv6 reports that the kernel has no IPv6.
	NoIPv6 bool
	// Health finds out which endpoints are good, and tells the store; nil: nobody does.
	Health   *endpointhealth.Monitor
	Observer Observer
	Log      *slog.Logger
}

// Proxier is the loop.
type Proxier struct {
	settings  *config.Settings
	store     *state.Store
	dataplane Dataplane
	observer  Observer
	log       *slog.Logger

	reconfigured <-chan *config.Settings
	interference <-chan dataplane.Interference
	unrepaired   *dataplane.Interference // came while passes failed
	found        *dataplane.Interference // by a check
	looking      looking
	servers      time.Time            // since when virtual servers wait for a repair; zero: they do not
	told         map[string]time.Time // changes that were reported, and that --repair=false leaves in force

	node     nodeEnvironment
	planning planning
	taken    []state.Changes     // what passes took and the kernel does not have yet
	left     bool                // the latest pass left Services for the next one
	replan   map[state.Name]bool // Services that the dataplane wants planned again with the next pass
	pace     pace
	pauses   pauses
	triggers triggers
	checks   healthChecks
	flows    flowCleaner
	health   *endpointhealth.Monitor // nil: nobody looks
	problems problemLog
	errors   errorLog
}

// New returns a loop that has done nothing yet.
func New(o Options) *Proxier {
	lines := NewLines(o.Log, o.Settings.Budgets.NamespaceLogLines)
	return &Proxier{
		settings: o.Settings, store: o.Store, dataplane: o.Dataplane, observer: o.Observer, log: o.Log,
		interference: o.Interference, reconfigured: o.Reconfigured, told: map[string]time.Time{},

		node:     nodeEnvironment{settings: o.Settings, primary: o.Primary, ipv6: !o.NoIPv6, servers: o.APIServers, log: o.Log},
		planning: newPlanning(o.Store, o.Settings, o.Health, o.Dataplane.Slots),
		replan:   map[state.Name]bool{},
		pace:     pace{minPeriod: o.Settings.MinSyncPeriod},
		pauses:   newPauses(o.Log, &o.Settings.Budgets),
		triggers: newTriggers(time.Now()),
		checks:   newHealthChecks(),
		flows:    newFlowCleaner(o.Flows, o.Former, o.Adopted, o.Log),
		health:   o.Health,
		problems: newProblemLog(o.Log, &lines),
		errors:   newErrorLog(o.Log, &lines),
	}
}
