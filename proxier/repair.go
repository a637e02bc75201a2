package proxier

import (
	"log/slog"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/flows"
	"github.com/verdict-proxy/verdict/proxier/report"
)

// repairer finds what other processes changed, undoes it and reports it.
type repairer struct {
	enabled   bool // --repair
	dataplane Dataplane
	pace      *pace
	flows     *flows.Cleaner
	observer  report.Observer
	lines     *report.Log
	log       *slog.Logger

	interference <-chan dataplane.Interference
	postponed    *dataplane.Interference // came while passes failed
	found        *dataplane.Interference // by a check
	rechecking   rechecking
	servers      time.Time     // since when virtual servers wait for a repair; zero: they do not
	told         report.Lately // changes that were reported, and that --repair=false leaves in force
}

// compare compares the kernel with what the loop wrote. It reports whether a pass has to repair what others changed
// ("ipvsadm -C", for example), and whether nothing differs.
func (p *repairer) compare() (wanted, same bool) {
	found, err := p.dataplane.Compare(p.enabled)
	p.lines.Compared(err, checkPeriod, time.Now())
	if !found.Tables.Empty() && p.tellOnce(found.Tables.String()) {
		p.found = &found.Tables
	}
	if found.Servers {
		p.serversChanged()
	}
	return found.Servers && p.enabled, err == nil && found.Tables.Empty() && !found.Servers && p.rechecking.report == nil
}

// repairFound repairs what a check found. It does so at the next tick: if the kernel told of the change as well, that
// message has come by then, and names the process.
func (p *repairer) repairFound() {
	if i := p.found; i != nil {
		p.found = nil
		p.repair(*i)
	}
}

// serversChanged reports that virtual servers differ. The next pass repairs them.
func (p *repairer) serversChanged() {
	r := report.Repair{Servers: true}
	if !p.tellOnce(r.What()) {
		return
	}
	next := "writing them again"
	if !p.enabled {
		next = "nothing, because of --repair=false"
	}
	p.log.Warn("someone else changed the virtual servers of Verdict", "next", next)
	if !p.enabled {
		p.observer.Repaired(r)
		return
	}
	p.servers = time.Now()
	p.flows.RulesRepaired(false)
}

// serversDone reports the repair of virtual servers, after a pass.
func (p *repairer) serversDone(pass *report.Pass) {
	if p.servers.IsZero() {
		return
	}
	p.observer.Repaired(report.Repair{Servers: true, Tried: true, Result: pass.Result, Duration: time.Since(p.servers)})
	p.servers = time.Time{}
}

// tellAgain is how often a change that stays, because of --repair=false, is reported.
const tellAgain = 10 * time.Minute

// tellOnce notes that a change is reported. It returns false if that was done before, because --repair=false leaves the
// change in force.
func (p *repairer) tellOnce(what string) (news bool) {
	if p.enabled {
		return true
	}
	now := time.Now()
	for part := range strings.SplitSeq(what, ", ") {
		news = p.told.Due(part, tellAgain, now) || news
	}
	return news
}

// repair undoes what another process did to the tables. After a failure, pace has a pass done.
func (p *repairer) repair(i dataplane.Interference) {
	if p.found != nil {
		p.found.Merge(i)
		i, p.found = *p.found, nil
	}
	for len(p.interference) > 0 {
		i.Merge(<-p.interference)
	}
	p.tellOnce(i.String())
	p.lines.Interference(&i, p.next(), time.Now())
	done := report.Repair{Interference: i}
	switch {
	case !p.enabled:
	case !p.pace.begun():
		// Changes of the rules are undone before the first pass: they may keep the answers of the API server away.
		if err := p.dataplane.Repair(i).Err; err != nil {
			p.log.Error("cannot undo what another process changed", "error", err, "next", "the first pass compares everything")
		}
	case p.pace.failures > 0:
		p.postpone(i)
	default:
		began := time.Now()
		done.Result, done.Tried = p.dataplane.Repair(i), true
		if done.Result.More {
			p.rechecking.begin(done, began)
			return
		}
		done.Duration = time.Since(began)
	}
	p.repaired(done)
}

// repaired reports the end of a repair.
func (p *repairer) repaired(done report.Repair) {
	if done.Tried {
		p.lines.Repair(&done)
		if done.Result.Err != nil {
			p.pace.failed(time.Now())
		}
	}
	if p.enabled {
		p.flows.RulesRepaired(done.Tried && done.Result.Err == nil)
	}
	p.observer.Repaired(done)
}

// next says what becomes of a change by another process.
func (p *repairer) next() string {
	switch {
	case !p.enabled:
		return "nothing, because of --repair=false"
	case p.pace.failures > 0:
		return "it is undone when a pass applies again"
	case !p.pace.begun():
		return "rules are put right now, and elements by the first pass"
	}
	return "it is undone now"
}

// postpone keeps an interference until a pass is in the kernel. The pass may write everything, but it need not: it may
// have failed before it came to the tables.
func (p *repairer) postpone(i dataplane.Interference) {
	if p.postponed != nil {
		p.postponed.Merge(i)
		return
	}
	p.postponed = &i
}

// repairPostponed undoes what came while passes failed.
func (p *repairer) repairPostponed() {
	if i := p.postponed; i != nil {
		p.postponed = nil
		p.repair(*i)
	}
}

// recheck compares the next part of everything.
func (p *repairer) recheck() {
	began, c := time.Now(), &p.rechecking
	result := p.dataplane.RepairMore()
	c.report.Result.Add(result)
	if c.scheduleNext(began); result.More && result.Err == nil {
		return
	}
	done := *c.report
	c.report, done.Duration = nil, time.Since(c.began)
	p.repaired(done)
}

// A repair that has to compare everything does so in parts. Changes of Services wait for one part at most, and the parts
// together take a twentieth of the time.
const (
	partPause = 19 // times as long as a part took
	minPause  = 50 * time.Millisecond
)

// rechecking is a repair that has to compare everything.
type rechecking struct {
	report *report.Repair // nil: there is none
	began  time.Time
	next   time.Time // when the next part may begin
}

// begin notes a repair. Another one may be under way.
func (r *rechecking) begin(repair report.Repair, began time.Time) {
	if r.report != nil {
		r.report.Interference.Merge(repair.Interference)
		r.report.Result.Add(repair.Result)
		return
	}
	r.report, r.began = &repair, began
	r.scheduleNext(began)
}

// scheduleNext delays the next part, so that rechecking uses at most 5 % of the time.
func (r *rechecking) scheduleNext(began time.Time) {
	now := time.Now()
	r.next = now.Add(max(minPause, partPause*now.Sub(began)))
}

// due fires when the next part may begin. While passes fail, none does.
func (r *rechecking) due(failures int) <-chan time.Time {
	if r.report == nil || failures > 0 {
		return nil
	}
	return time.After(time.Until(r.next))
}
