package report

import (
	"time"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Observer is notified of what the loop does. The loop calls its methods; they must not block.
type Observer interface {
	// Pending reports since when changes wait for the kernel. Changes before the first sync do not count.
	Pending(since time.Time)
	PassDone(Pass)
	Problems(Problems)
	FlowsCleaned([]conntrack.Result)
	Repaired(Repair)
}

// Pass is what one pass did.
type Pass struct {
	Started  time.Time
	Duration time.Duration
	Services int           // planned in this pass
	Planning time.Duration // the part of Duration until the engines had all plans
	Pauses   int           // namespaces that have to wait from now on, because they changed too much
	Result   dataplane.Result
	// Totals count what each engine serves after the pass.
	Totals dataplane.AllTotals
	// Triggers are the times at which the endpoint controller noted the changes that this pass brought into the kernel.
	Triggers []Trigger
	// HealthChecks are the healthCheckNodePort servers wanted from now on; nil: as before.
	HealthChecks *HealthChecks
	// NodeEligible is false while the Node is being deleted or tainted for deletion.
	NodeEligible bool
}

// Problems names what cannot be honored.
type Problems struct {
	Changed []state.ObjectProblems // all problems of each object whose problems changed, sorted by object
	Faulty  map[string]int         // how many objects of each kind have problems; kinds that never had any are missing
	Fields  map[[2]string]int      // how many problems each field of a kind has
}

// Repair is what another process did to the tables or to virtual servers, and what became of the repair.
type Repair struct {
	Interference dataplane.Interference // with the tables
	Servers      bool                   // virtual servers were changed, and not the tables
	Tried        bool                   // false: --repair=false, or a pass that is due compares everything anyway
	Result       dataplane.Result
	Duration     time.Duration
}

// What names what was changed.
func (r *Repair) What() string {
	if r.Servers {
		return "virtual servers"
	}
	return r.Interference.String()
}
