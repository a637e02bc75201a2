package proxier

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Choose chooses the endpoints of a pool that get new connections, for planning, which has called begin before. These
// get them, in this order:
//
//   - the primary endpoints that pass the checks, without those that are ejected;
//   - the backup endpoints that pass the checks, without those that are ejected;
//   - what on-all-down says.
//
// An endpoint that is not checked passes.
func (o *Outliers) Choose(svc *state.Service, protocol state.Protocol, pool []plan.Endpoint) []plan.Endpoint {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.drafts[svc.Name]
	if d == nil {
		return pool // it has no backups
	}
	c := choice{Outliers: o, svc: svc, protocol: protocol, draft: d, now: time.Now()}
	return c.choose(pool)
}

// Dead reports whether an endpoint fails the check of its Service.
func (o *Outliers) Dead(svc *state.Service, protocol state.Protocol, at netip.AddrPort) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.drafts[svc.Name]
	if d == nil {
		return false
	}
	t, checked := activecheck.TargetOf(d.check, protocol, at)
	if !checked {
		return false
	}
	down, _, _ := o.checker.Down(svc.Name, d.check, t)
	return down
}

// checkOf returns the check of a Service; nil: none. Those of the cluster itself are checked only if they ask for it.
func (o *Outliers) checkOf(svc *state.Service) *state.HealthCheck {
	check := svc.Check
	if check == nil && !needed(svc.Name) {
		check = o.Default
	}
	if check == nil || check.Kind == state.CheckOff {
		return nil
	}
	return check
}

// choice is the work on one pool.
type choice struct {
	*Outliers
	svc      *state.Service
	protocol state.Protocol
	draft    *ejectionDraft
	now      time.Time
}

func (c *choice) choose(pool []plan.Endpoint) []plan.Endpoint {
	c.note(pool)
	primaries, backups := split(pool)
	rows := len(c.draft.rows)
	chosen := c.good(primaries, len(backups) > 0)
	if len(chosen) == 0 {
		chosen = c.good(backups, false)
	}
	anyGood := len(chosen) > 0
	if !anyGood {
		chosen = c.fallback(primaries, backups)
	}
	if len(backups) > 0 || !anyGood || len(chosen) < len(pool) {
		in := endpointAddresses(chosen)
		noteKept(c.draft.rows[rows:], in)
		c.listBackups(backups, in, anyGood)
		c.noteOut(pool, in)
	}
	return c.slowly(chosen)
}

// note remembers who has to be asked.
func (c *choice) note(pool []plan.Endpoint) {
	for i := range pool {
		if c.protocol == state.TCP {
			c.draft.pools = append(c.draft.pools, pool[i].Addr)
		}
		if t, checked := activecheck.TargetOf(c.draft.check, c.protocol, pool[i].Addr); checked {
			c.draft.targets = append(c.draft.targets, t)
		}
	}
}

func split(pool []plan.Endpoint) (primaries, backups []plan.Endpoint) {
	if !slices.ContainsFunc(pool, func(e plan.Endpoint) bool { return e.Backup }) {
		return pool, nil
	}
	for i := range pool {
		if pool[i].Backup {
			backups = append(backups, pool[i])
		} else {
			primaries = append(primaries, pool[i])
		}
	}
	return primaries, backups
}

// good returns the endpoints that pass the checks and are not ejected. If all of them have failed, they stay, unless
// others can take their place.
func (c *choice) good(list []plan.Endpoint, others bool) []plan.Endpoint {
	list = c.passing(list)
	if !c.draft.ejects || c.protocol != state.TCP || len(list) == 0 {
		return list
	}
	addrs := make([]netip.AddrPort, len(list))
	for i := range list {
		addrs[i] = list[i].Addr
	}
	out, mass := c.detector.Eject(c.svc.Name, addrs)
	if others && !mass && c.detector.AllFailed(c.svc.Name, addrs) {
		out = addrs
	}
	c.draft.ejection.Mass = c.draft.ejection.Mass || mass
	if len(out) == 0 {
		return list
	}
	c.draft.ejection.Endpoints = append(c.draft.ejection.Endpoints, out...)
	return without(list, unique(out))
}

// passing returns the endpoints that pass the checks.
func (c *choice) passing(list []plan.Endpoint) []plan.Endpoint {
	if c.draft.check == nil {
		return list
	}
	var good []plan.Endpoint
	for i := range list {
		t, checked := activecheck.TargetOf(c.draft.check, c.protocol, list[i].Addr)
		if checked {
			down, since, why := c.checker.Down(c.svc.Name, c.draft.check, t)
			if down {
				c.row(outlier.StateFailing, list[i].Addr, since, why)
				continue
			}
		}
		good = append(good, list[i])
	}
	return good
}

// fallback returns who gets connections if nobody passes.
func (c *choice) fallback(primaries, backups []plan.Endpoint) []plan.Endpoint {
	switch {
	case c.svc.AllDown == state.RefuseAll:
		return nil
	case len(primaries) == 0, c.svc.AllDown == state.BackupOnly && len(backups) > 0:
		return backups
	}
	return primaries
}

// endpointAddresses returns the addresses of endpoints, sorted.
func endpointAddresses(list []plan.Endpoint) []netip.AddrPort {
	out := make([]netip.AddrPort, len(list))
	for i := range list {
		out[i] = list[i].Addr
	}
	return unique(out)
}

// has reports whether a sorted list has an endpoint.
func has(list []netip.AddrPort, at netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(list, at, netip.AddrPort.Compare)
	return found
}

// noteOut remembers who gets no connections because it is bad. A good backup endpoint is not among these.
func (c *choice) noteOut(pool []plan.Endpoint, in []netip.AddrPort) {
	if c.protocol != state.TCP {
		return
	}
	for i := range pool {
		if !has(in, pool[i].Addr) && !pool[i].Backup {
			c.draft.out = append(c.draft.out, pool[i].Addr)
		}
	}
}

// noteKept marks those that fail their checks and get connections all the same, because no endpoint is good.
func noteKept(rows []outlier.Status, in []netip.AddrPort) {
	for i := range rows {
		if has(in, rows[i].Endpoint) {
			rows[i].Hold = outlier.NobodyGood
		}
	}
}

// listBackups tells Statuses which endpoints are backups. setRows knows since when they are in use.
func (c *choice) listBackups(backups []plan.Endpoint, in []netip.AddrPort, anyGood bool) {
	idle := "another endpoint is good"
	switch {
	case !anyGood:
		idle = "no endpoint is good, and on-all-down is " + c.svc.AllDown.String()
	case slices.ContainsFunc(backups, func(e plan.Endpoint) bool { return has(in, e.Addr) }):
		idle = "it is bad itself"
	}
	for i := range backups {
		if has(in, backups[i].Addr) {
			c.row(outlier.StateBackupInUse, backups[i].Addr, c.now, "no other endpoint is good")
		} else {
			c.row(outlier.StateBackupIdle, backups[i].Addr, time.Time{}, idle)
		}
	}
}

func (c *choice) row(s outlier.State, at netip.AddrPort, since time.Time, why string) {
	c.draft.rows = append(c.draft.rows, outlier.Status{
		Endpoint: at, Protocol: c.protocol, State: s, Since: since, Services: []state.Name{c.svc.Name}, Why: why,
	})
}

// without returns a new list without some endpoints, which are sorted.
func without(list []plan.Endpoint, out []netip.AddrPort) (rest []plan.Endpoint) {
	for i := range list {
		if !has(out, list[i].Addr) {
			rest = append(rest, list[i])
		}
	}
	return rest
}
