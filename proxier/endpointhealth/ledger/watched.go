package ledger

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Watched is a Service whose endpoints are looked at.
type Watched struct {
	Name      state.Name
	Ejects    bool
	Check     *state.HealthCheck // nil: none
	AllDown   state.AllDown
	Choices   []plan.Choice   // of the latest plan
	States    []*checks.State // of the choices, in their order; nil: it is not checked
	Published state.Health    // what the store knows
	Recalled  bool            // published is of the process before, and no plan has had it since
	Next      time.Time       // when the store may be told again
	OnBackups time.Time       // since when backups are in use; zero: they are not
	Problems  []state.Problem // of the latest Set
}

// Move is a change of the endpoints of a Service that its plan leaves out because they have failed.
type Move struct {
	Service   state.Name
	Out, Back []netip.AddrPort
}

// AsksAs reports whether both ask the same of the same endpoints.
func (w *Watched) AsksAs(o *Watched) bool {
	sameCheck := w.Check == o.Check || w.Check != nil && o.Check != nil && *w.Check == *o.Check
	return sameCheck && w.Ejects == o.Ejects && slices.EqualFunc(w.Choices, o.Choices, func(a, b plan.Choice) bool {
		return a.At == b.At && a.Protocol == b.Protocol && a.Local == b.Local
	})
}

// Chosen records what a plan makes of the endpoints, and returns what has changed.
func (w *Watched) Chosen(choices []plan.Choice, now time.Time) (m Move) {
	was, out := leftOut(w.Choices), leftOut(choices)
	w.Choices = choices
	backups := slices.ContainsFunc(choices, func(c plan.Choice) bool { return c.Backup && c.Use <= plan.KeptShare }) &&
		slices.ContainsFunc(choices, func(c plan.Choice) bool { return !c.Backup })
	switch {
	case !backups:
		w.OnBackups = time.Time{}
	case w.OnBackups.IsZero():
		w.OnBackups = now
	}
	return Move{Service: w.Name, Out: without(out, was), Back: without(was, out)}
}

func leftOut(choices []plan.Choice) (list []netip.AddrPort) {
	for i := range choices {
		if choices[i].Use == plan.LeftOut {
			list = append(list, choices[i].At)
		}
	}
	return list
}

// without lists what is in the first list only. Both are sorted.
func without(list, other []netip.AddrPort) (out []netip.AddrPort) {
	for _, at := range list {
		if _, found := slices.BinarySearchFunc(other, at, netip.AddrPort.Compare); !found {
			out = append(out, at)
		}
	}
	return out
}

// Choice finds what a plan makes of an endpoint; false: it has none.
func (w *Watched) Choice(protocol state.Protocol, at netip.AddrPort) (plan.Choice, bool) {
	i, found := slices.BinarySearchFunc(w.Choices, at, func(c plan.Choice, a netip.AddrPort) int {
		return cmp.Or(c.At.Compare(a), cmp.Compare(c.Protocol, protocol))
	})
	if !found {
		return plan.Choice{}, false
	}
	return w.Choices[i], true
}

// Target is who is checked about an endpoint.
func (w *Watched) Target(protocol state.Protocol, at netip.AddrPort) (t probe.Target, checked bool) {
	return checks.TargetOf(w.Check, probe.Target{Protocol: protocol, At: at})
}

// Health lists the endpoints that are not good, by whatever word.
func (w *Watched) Health(d *suspicion.Detector, now time.Time) (health state.Health) {
	if w.Ejects {
		health = d.Failures(w.Name, now)
	}
	o := w.Others()
	for i, k := range w.States {
		if c := &w.Choices[i]; k != nil && k.Down && o.Hold(k, c.Local) == suspicion.None {
			health = append(health, state.Failure{
				Protocol: c.Protocol, At: c.At, Since: k.Since, Sure: c.Local || o.pass || k.Fault.Definite(),
			})
		}
	}
	return state.MergeFailures(health)
}

// others is what the endpoints of a Service on other nodes answer to its check. A network policy may keep this node away
// from them, and the network of this node may be lost. While one of them passes, neither is so.
type others struct{ pass, reached bool }

func (w *Watched) Others() (o others) {
	for i, k := range w.States {
		if k != nil && !w.Choices[i].Local {
			o.pass = o.pass || k.Passed && !k.Down
			o.reached = o.reached || k.Reached
		}
	}
	return o
}

// FindStates finds the checks of the endpoints. They stay the same as long as the endpoints and the check do.
func (w *Watched) FindStates(c *checks.Checker) {
	w.States = nil
	if w.Check == nil {
		return
	}
	w.States = make([]*checks.State, len(w.Choices))
	for i := range w.Choices {
		if t, checked := w.Target(w.Choices[i].Protocol, w.Choices[i].At); checked {
			w.States[i] = c.Of(w.Name, w.Check, t)
		}
	}
}

// Hold returns why an endpoint gets connections although it fails its check.
func (o others) Hold(k *checks.State, local bool) suspicion.Hold {
	if !k.Reached && !local && !o.reached {
		return suspicion.NeverReached
	}
	return suspicion.None
}
