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
	chosen := c.good(primaries, len(backups) > 0)
	if len(chosen) == 0 {
		chosen = c.good(backups, false)
	}
	if len(chosen) == 0 {
		chosen = c.fallback(primaries, backups)
	}
	c.listBackups(backups, len(chosen) > 0 && chosen[0].Backup)
	if c.protocol == state.TCP && len(chosen) < len(pool) {
		c.noteOut(pool, chosen)
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

// noteOut remembers who gets no connections because it is bad. A good backup endpoint is not among these.
func (c *choice) noteOut(pool, chosen []plan.Endpoint) {
	in := make([]netip.AddrPort, len(chosen))
	for i := range chosen {
		in[i] = chosen[i].Addr
	}
	in = unique(in)
	for i := range pool {
		if _, found := slices.BinarySearchFunc(in, pool[i].Addr, netip.AddrPort.Compare); !found && !pool[i].Backup {
			c.draft.out = append(c.draft.out, pool[i].Addr)
		}
	}
}

// listBackups tells Statuses which endpoints are backups.
func (c *choice) listBackups(backups []plan.Endpoint, used bool) {
	why := "not used: another endpoint is good"
	if used {
		why = "in use: no other endpoint is good"
	}
	for i := range backups {
		c.row(outlier.StateBackup, backups[i].Addr, time.Time{}, why)
	}
}

func (c *choice) row(s outlier.State, at netip.AddrPort, since time.Time, why string) {
	c.draft.rows = append(c.draft.rows, outlier.Status{
		Endpoint: at, State: s, Since: since, Services: []state.Name{c.svc.Name}, Why: why,
	})
}

// without returns a new list without some endpoints, which are sorted.
func without(list []plan.Endpoint, out []netip.AddrPort) (rest []plan.Endpoint) {
	for i := range list {
		if _, found := slices.BinarySearchFunc(out, list[i].Addr, netip.AddrPort.Compare); !found {
			rest = append(rest, list[i])
		}
	}
	return rest
}

// setRows remembers what Statuses tells of a Service. Both pools of a port list an endpoint.
func (o *Outliers) setRows(name state.Name, rows []outlier.Status) {
	if len(rows) == 0 {
		delete(o.rows, name)
		return
	}
	slices.SortStableFunc(rows, outlier.Status.Compare)
	o.rows[name] = slices.CompactFunc(rows, func(a, b outlier.Status) bool { return a.Compare(b) == 0 })
}
