package proxier

import (
	"maps"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
)

// RepairReport tells what another process did to the tables or to virtual servers, and what became of the repair.
type RepairReport struct {
	Interference dataplane.Interference // with the tables
	Servers      bool                   // virtual servers were changed, and not the tables
	Tried        bool                   // false: --repair=false, or a pass that is due compares everything anyway
	Result       dataplane.Result
	Duration     time.Duration
}

// What names what was changed.
func (r *RepairReport) What() string {
	if r.Servers {
		return "virtual servers"
	}
	return r.Interference.String()
}

// check compares the kernel with what the loop wrote. It reports whether a pass has to repair what others changed
// ("ipvsadm -C", for example), or to ask again for addresses of the host.
func (p *Proxier) check() (wanted bool) {
	if !p.node.known || p.pace.failures > 0 {
		return false
	}
	found, err := p.dataplane.Check(p.settings.Repair)
	if err != nil {
		p.log.Warn("cannot compare the kernel with what Verdict wrote; trying again", "every", checkPeriod, "error", err)
	}
	if !found.Tables.Empty() && p.tellOnce(found.Tables.String()) {
		p.found = &found.Tables
	}
	if found.Servers {
		p.serversChanged()
	}
	return found.Servers && p.settings.Repair || p.node.askAgain
}

// repairFound repairs what a check found. It does so at the next tick: if the kernel told of the change as well, that
// message has come by then, and names the process.
func (p *Proxier) repairFound() {
	if i := p.found; i != nil {
		p.found = nil
		p.repair(*i)
	}
}

// serversChanged reports that virtual servers differ. The next pass repairs them.
func (p *Proxier) serversChanged() {
	r := RepairReport{Servers: true}
	if !p.tellOnce(r.What()) {
		return
	}
	next := "writing them again"
	if !p.settings.Repair {
		next = "nothing, because of --repair=false"
	}
	p.log.Warn("someone else changed the virtual servers of Verdict", "next", next)
	if !p.settings.Repair {
		p.observer.Repaired(r)
		return
	}
	p.servers = time.Now()
	p.flows.rulesRepaired(false)
}

// serversDone reports the repair of virtual servers, after a pass.
func (p *Proxier) serversDone(pass *PassReport) {
	if p.servers.IsZero() {
		return
	}
	p.observer.Repaired(RepairReport{Servers: true, Tried: true, Result: pass.Result, Duration: time.Since(p.servers)})
	p.servers = time.Time{}
}

// tellAgain is how often a change that stays, because of --repair=false, is reported.
const tellAgain = 10 * time.Minute

// tellOnce notes that a change is reported. It returns false if that was done before, because --repair=false leaves the
// change in force.
func (p *Proxier) tellOnce(what string) (news bool) {
	if p.settings.Repair {
		return true
	}
	now := time.Now()
	maps.DeleteFunc(p.told, func(_ string, when time.Time) bool { return now.Sub(when) >= tellAgain })
	for part := range strings.SplitSeq(what, ", ") {
		if _, told := p.told[part]; !told {
			news, p.told[part] = true, now
		}
	}
	return news
}

// repair undoes what another process did to the tables, and reports whether a pass is needed.
func (p *Proxier) repair(i dataplane.Interference) (wanted bool) {
	if p.found != nil {
		p.found.Merge(i)
		i, p.found = *p.found, nil
	}
	for len(p.interference) > 0 {
		i.Merge(<-p.interference)
	}
	p.tellOnce(i.String())
	p.errors.foreign.changed(&i, p.afterInterference(), time.Now())
	report := RepairReport{Interference: i}
	switch {
	case !p.settings.Repair:
	case !p.node.known:
		p.mend(i)
	case p.pace.failures > 0:
		p.repairLater(i)
	default:
		began := time.Now()
		report.Result, report.Tried = p.dataplane.Repair(i), true
		if report.Result.More {
			p.looking.begin(report, began)
			return false
		}
		report.Duration = time.Since(began)
	}
	p.repaired(report)
	return false // after a failure, pace has a pass done
}

// mend undoes changes of the rules before the first pass: they may keep the answers of the API server away.
func (p *Proxier) mend(i dataplane.Interference) {
	if err := p.dataplane.Repair(i).Err; err != nil {
		p.log.Error("cannot undo what another process changed", "error", err, "next", "the first pass compares everything")
	}
}

// repaired reports the end of a repair.
func (p *Proxier) repaired(report RepairReport) {
	if report.Tried {
		p.errors.repair(&report)
		if report.Result.Err != nil {
			p.pace.failed(time.Now())
		}
	}
	if p.settings.Repair {
		p.flows.rulesRepaired(report.Tried && report.Result.Err == nil)
	}
	p.observer.Repaired(report)
}

// afterInterference says what becomes of a change by another process.
func (p *Proxier) afterInterference() string {
	switch {
	case !p.settings.Repair:
		return "nothing, because of --repair=false"
	case p.pace.failures > 0:
		return "it is undone when a pass applies again"
	case !p.node.known:
		return "rules are put right now, and elements by the first pass"
	}
	return "it is undone now"
}

// repairLater keeps an interference until a pass is in the kernel. The pass may write everything, but it need not: it may
// have failed before it came to the tables.
func (p *Proxier) repairLater(i dataplane.Interference) {
	if p.unrepaired != nil {
		p.unrepaired.Merge(i)
		return
	}
	p.unrepaired = &i
}

// repairNow undoes what came while passes failed.
func (p *Proxier) repairNow() {
	if i := p.unrepaired; i != nil {
		p.unrepaired = nil
		p.repair(*i)
	}
}

// A repair that has to look at everything does so in parts. Changes of Services wait for one part at most, and the parts
// together take a twentieth of the time.
const (
	lookPause = 19 // times as long as a part took
	minPause  = 50 * time.Millisecond
)

// looking is a repair that has to look at everything.
type looking struct {
	report *RepairReport // of the repair; nil: there is none
	began  time.Time
	next   time.Time // when the next part may begin
}

// begin notes a repair. Another one may be under way.
func (l *looking) begin(report RepairReport, began time.Time) {
	if l.report != nil {
		l.report.Interference.Merge(report.Interference)
		l.report.Result.Add(report.Result)
		return
	}
	l.report, l.began = &report, began
	l.rest(began)
}

// rest delays the next part.
func (l *looking) rest(began time.Time) {
	now := time.Now()
	l.next = now.Add(max(minPause, lookPause*now.Sub(began)))
}

// due fires when the next part may begin. While passes fail, none does.
func (l *looking) due(failures int) <-chan time.Time {
	if l.report == nil || failures > 0 {
		return nil
	}
	return time.After(time.Until(l.next))
}

// look looks at the next part.
func (p *Proxier) look() {
	began, l := time.Now(), &p.looking
	result := p.dataplane.Look()
	l.report.Result.Add(result)
	if l.rest(began); result.More && result.Err == nil {
		return
	}
	report := *l.report
	l.report, report.Duration = nil, time.Since(l.began)
	p.repaired(report)
}
