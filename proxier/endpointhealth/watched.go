package endpointhealth

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// watched is a Service whose endpoints are looked at.
type watched struct {
	name      state.Name
	ejects    bool
	check     *state.HealthCheck // nil: none
	allDown   state.AllDown
	choices   []plan.Choice   // of the latest plan
	checks    []*checks.Check // of the choices, in their order; nil: it is not checked
	looks     []*checks.Check // the first looks at them
	published state.Health    // what the store knows
	recalled  bool            // published is of the process before, and no plan has had it since
	next      time.Time       // when the store may be told again
	onBackups time.Time       // since when backups are in use; zero: they are not
	problems  []state.Problem // of the latest questions
}

// Move is a change of the endpoints of a Service that its plan leaves out because they have failed.
type Move struct {
	Service   state.Name
	Out, Back []netip.AddrPort
}

// asksAs reports whether both ask the same of the same endpoints.
func (w *watched) asksAs(o *watched) bool {
	sameCheck := w.check == o.check || w.check != nil && o.check != nil && *w.check == *o.check
	return sameCheck && w.ejects == o.ejects && slices.EqualFunc(w.choices, o.choices, func(a, b plan.Choice) bool {
		return a.At == b.At && a.Protocol == b.Protocol && a.Local == b.Local
	})
}

// chosen records what a plan makes of the endpoints, and returns what has changed.
func (w *watched) chosen(choices []plan.Choice, now time.Time) Move {
	m := Move{Service: w.name, Out: leftOut(choices, w.choices), Back: leftOut(w.choices, choices)}
	w.choices = choices
	backups := slices.ContainsFunc(choices, func(c plan.Choice) bool { return c.Backup && c.Use <= plan.KeptShare }) &&
		slices.ContainsFunc(choices, func(c plan.Choice) bool { return !c.Backup })
	if !backups {
		w.onBackups = time.Time{}
	} else if w.onBackups.IsZero() {
		w.onBackups = now
	}
	return m
}

// leftOut lists the endpoints that the first plan leaves out, and the other one does not.
func leftOut(choices, others []plan.Choice) (list []netip.AddrPort) {
	for _, c := range choices {
		if c.Use != plan.LeftOut {
			continue
		}
		if i, found := find(others, c.Protocol, c.At); !found || others[i].Use != plan.LeftOut {
			list = append(list, c.At)
		}
	}
	return list
}

// find finds an endpoint; false: the plan has none.
func find(choices []plan.Choice, protocol state.Protocol, at netip.AddrPort) (i int, found bool) {
	return slices.BinarySearchFunc(choices, at, func(c plan.Choice, a netip.AddrPort) int {
		return cmp.Or(c.At.Compare(a), cmp.Compare(c.Protocol, protocol))
	})
}

// look returns the first look at an endpoint; nil: nothing is known of it, and nothing depends on it.
func (w *watched) look(at netip.AddrPort) *checks.Check {
	if w == nil {
		return nil
	}
	if i, found := find(w.choices, state.TCP, at); found {
		return w.looks[i]
	}
	return nil
}

// health lists the endpoints that are not good, by whatever word.
func (w *watched) health(d *suspicion.Detector, now time.Time) (health state.Health) {
	if w.ejects {
		health = d.Failures(w.name, w.published, now)
	}
	o := w.others()
	for i, k := range w.checks {
		if c := &w.choices[i]; k != nil && k.Down && o.hold(k, c.Local) == suspicion.None {
			health = append(health, state.Failure{
				Protocol: c.Protocol, At: c.At, Since: k.Since, Sure: c.Local || o.pass || k.Fault.Definite(),
				Accepts: w.check.Port == 0 && k.Fault.Connected(),
			})
		}
	}
	return state.MergeFailures(health)
}

// others is what the endpoints of a Service on other nodes answer to its check. A network policy may keep this node away
// from them, and the network of this node may be lost. While one of them passes, neither is so.
type others struct{ pass, reached bool }

func (w *watched) others() (o others) {
	for i, k := range w.checks {
		if k != nil && !w.choices[i].Local {
			o.pass = o.pass || k.Passed && !k.Down
			o.reached = o.reached || k.Reached
		}
	}
	return o
}

// hold returns why an endpoint gets connections although it fails its check.
func (o others) hold(k *checks.Check, local bool) suspicion.Hold {
	if !k.Reached && !local && !o.reached {
		return suspicion.NeverReached
	}
	return suspicion.None
}
