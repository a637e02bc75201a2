package endpointhealth

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// State of an endpoint.
type State uint8

// The states.
const (
	StateSuspected   State = iota // it is being asked
	StateFailed                   // it does not answer, or refuses
	StateFailing                  // it fails the check of its Service
	StateBackupInUse              // it is a backup endpoint and gets connections
	StateBackupIdle               // it is a backup endpoint and gets none
)

func (s State) String() string {
	return [...]string{"suspected", "failed", "failing", "backup, in use", "backup, not used"}[s]
}

// Status is one thing that is known of an endpoint.
type Status struct {
	Endpoint netip.AddrPort
	Protocol state.Protocol // an endpoint under suspicion is one of TCP
	Node     string
	State    State
	Since    time.Time // the zero time: it is not known, or says nothing
	Reason   suspicion.Reason
	Answer   probe.Fault    // of the latest answer
	Hold     suspicion.Hold // why it is not ejected although it failed
	Services []state.Name
	Ejected  []state.Name // those of the Services whose plans leave it out
	// StillReady: it has failed for a minute, and its EndpointSlice calls it ready.
	StillReady bool
	Why        string // of the states from StateFailing on, which have no Reason and no Answer
}

// Compare orders by endpoint, then by state.
func (s Status) Compare(o Status) int {
	return cmp.Or(s.Endpoint.Compare(o.Endpoint), cmp.Compare(s.Protocol, o.Protocol), cmp.Compare(s.State, o.State))
}

// suspects describes the endpoints of a Service under suspicion, with what its plan makes of them; those of all Services if it has no
// name.
func suspects(l *ledger, of state.Name) (list []Status) {
	for _, r := range l.suspects.Records(of) {
		s, why := statusOf(&r), suspicion.Observed
		if is := l.services[r.Service]; is != nil && is.ejects {
			use := plan.Idle
			if i, found := find(is.choices, state.TCP, r.At); found {
				use = is.choices[i].Use
			}
			if why = suspicion.Limit; use == plan.LeftOut {
				s.Ejected = s.Services
			} else if use == plan.KeptLast {
				why = suspicion.NobodyGood
			}
		}
		if s.State == StateFailed && s.Hold == suspicion.None && len(s.Ejected) == 0 {
			s.Hold = cmp.Or(l.suspects.Withheld(&r), why)
		}
		list = append(list, s)
	}
	return list
}

// statusOf describes an endpoint under suspicion.
func statusOf(r *suspicion.Record) Status {
	s := Status{
		Endpoint: r.At, Protocol: state.TCP, Node: r.Word.Node, State: StateSuspected, Since: r.Since, Reason: r.Reason, Answer: r.Answer,
		Hold: r.Hold, Services: []state.Name{r.Service}, StillReady: r.StillReady,
	}
	if r.Phase == suspicion.Failed {
		s.State = StateFailed
	}
	return s
}

// rowsOf lists the statuses of the endpoints of a Service that fail its check, and of its backups.
func rowsOf(w *watched) (list []Status) {
	if w == nil {
		return nil
	}
	o := w.others()
	idle := whyIdle(w)
	for i := range w.choices {
		c := &w.choices[i]
		row := Status{Endpoint: c.At, Protocol: c.Protocol, Services: []state.Name{w.name}}
		if k := w.checks[i]; k != nil && k.Down {
			failing := row
			failing.State, failing.Since, failing.Why = StateFailing, k.Since, k.Why
			failing.Hold = cmp.Or(o.hold(k, c.Local), holdOfUse(c.Use))
			list = append(list, failing)
		}
		switch {
		case !c.Backup:
		case c.Use > plan.KeptShare:
			row.State, row.Why = StateBackupIdle, idle
			list = append(list, row)
		case !w.onBackups.IsZero():
			row.State, row.Since, row.Why = StateBackupInUse, w.onBackups, "no other endpoint is good"
			list = append(list, row)
		}
	}
	return list
}

// whyIdle says why a backup endpoint is not used.
func whyIdle(w *watched) string {
	has := func(uses ...plan.Use) bool {
		return slices.ContainsFunc(w.choices, func(c plan.Choice) bool { return slices.Contains(uses, c.Use) })
	}
	switch {
	case !w.onBackups.IsZero():
		return "it is bad itself"
	case has(plan.InUse, plan.KeptShare):
		return "another endpoint is good"
	}
	return "no endpoint is good, and on-all-down is " + w.allDown.String()
}

func holdOfUse(u plan.Use) suspicion.Hold {
	switch u {
	case plan.KeptLast:
		return suspicion.NobodyGood
	case plan.KeptShare:
		return suspicion.Limit
	}
	return suspicion.None
}
