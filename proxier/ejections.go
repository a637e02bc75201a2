package proxier

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/activecheck"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// This file is what the loop tells Outliers about plans. choose.go is what planning asks.

// ejectionDraft is what a plan leaves out, while the loop has not handed the plan to the dataplane yet.
type ejectionDraft struct {
	ejects   bool               // by its mode
	check    *state.HealthCheck // nil: none
	pools    []netip.AddrPort   // endpoints of TCP
	targets  []activecheck.Target
	out      []netip.AddrPort // endpoints of TCP that get no new connections, because they are bad
	rows     []outlier.Status
	ejection outlier.Ejection
}

// begin prepares the plan of a Service: it tells the detector what the slices say.
func (o *Outliers) begin(svc *state.Service, list []*state.Slice) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ejects, check := o.modeOf(svc.Name, svc.Outliers.Mode) == state.OutlierEject, o.checkOf(svc)
	backups := slices.ContainsFunc(list, func(sl *state.Slice) bool { return sl.Backup })
	o.slow.plan(svc.Name)
	if !ejects && check == nil && !backups && !o.detector.Has(svc.Name) && o.drafts[svc.Name] == nil {
		return // nearly every Service, unless all eject or are checked
	}
	o.drafts[svc.Name] = &ejectionDraft{ejects: ejects, check: check}
	if o.detector.Has(svc.Name) {
		nodes := o.nodesOf(list)
		o.detector.Refresh(svc.Name, func(at netip.AddrPort) (outlier.Word, int, bool) {
			w, ok := wordOf(list, at)
			return w, nodes, ok
		}, time.Now())
	}
}

// wordOf is what slices say about an endpoint.
func wordOf(list []*state.Slice, at netip.AddrPort) (w outlier.Word, found bool) {
	for _, sl := range list {
		if !slices.ContainsFunc(sl.Ports, func(p state.SlicePort) bool { return p.Protocol == state.TCP && p.Port == at.Port() }) {
			continue
		}
		for i := range sl.Endpoints {
			if e := &sl.Endpoints[i]; e.Addr == at.Addr() {
				return wordOfEndpoint(e), true
			}
		}
	}
	return w, false
}

func wordOfEndpoint(e *state.Endpoint) outlier.Word {
	return outlier.Word{Node: e.Node, Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating}
}

// set notes that the loop handed a plan to the dataplane; nil: the Service is gone. It reports whether the program has
// to notice refusals from now on, and what of the wish is not honored.
func (o *Outliers) set(name state.Name, planned *plan.Service) (refusals bool, problems []state.Problem) {
	if o == nil {
		return false, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.drafts[name]
	delete(o.drafts, name)
	if planned == nil {
		o.gone(name)
		return o.refusals, nil
	}
	// What one Service has asked for stays: to take the rule out again would write all tables anew, and a tenant could
	// do that all the time.
	o.refusals = o.refusals || planned.Outliers.Refusals && o.detects()
	if d == nil {
		d = &ejectionDraft{}
	}
	if d.ejects {
		o.looks.set(name, unique(d.pools))
		d.ejection.Endpoints = unique(d.ejection.Endpoints)
		o.detector.Planned(name, &d.ejection, time.Now())
	} else {
		o.looks.set(name, nil)
		o.detector.Planned(name, nil, time.Now())
	}
	d.out = unique(d.out)
	o.slow.drop(name, unique(d.pools), d.out)
	o.cut(name, planned, d.out)
	o.setRows(name, d.rows)
	return o.refusals, o.setChecks(name, d)
}

// gone forgets a Service.
func (o *Outliers) gone(name state.Name) {
	o.detector.Refresh(name, func(netip.AddrPort) (w outlier.Word, nodes int, ok bool) { return w, 0, false }, time.Now())
	o.detector.Planned(name, nil, time.Now())
	o.looks.set(name, nil)
	delete(o.out, name)
	o.setRows(name, nil)
	o.slow.forget(name)
	o.setChecks(name, &ejectionDraft{})
}

// unique sorts a list, with each endpoint once.
func unique(list []netip.AddrPort) []netip.AddrPort {
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// cut notes which connections are to be deleted when the kernel has the plan.
func (o *Outliers) cut(name state.Name, planned *plan.Service, ejected []netip.AddrPort) {
	before := o.out[name]
	if len(ejected) == 0 {
		delete(o.out, name)
		return
	}
	o.out[name] = ejected
	var frontends []conntrack.Frontend
	for _, at := range ejected {
		if has(before, at) {
			continue
		}
		if frontends == nil {
			frontends = tcpFrontends(planned)
		}
		o.planned = append(o.planned, conntrack.Unanswered{Endpoint: at, Frontends: frontends})
	}
}

func tcpFrontends(planned *plan.Service) (list []conntrack.Frontend) {
	for i := range planned.Ports {
		p := &planned.Ports[i]
		if p.Protocol != state.TCP {
			continue
		}
		for _, f := range p.Frontends {
			list = append(list, conntrack.Frontend{Addr: f.Addr, Port: f.Port, Family: p.Family})
		}
	}
	return list
}

// applied deletes connections to endpoints that were ejected. The kernel has the rules: new connections go elsewhere.
// The loop does not wait for it.
func (o *Outliers) applied(nodePorts []netip.Addr) {
	if o == nil {
		return
	}
	o.mu.Lock()
	list := o.planned
	o.planned = nil
	o.mu.Unlock()
	if len(list) == 0 {
		return
	}
	go func() {
		n, err := o.Delete(list, nodePorts)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.report.CutError = errors.Join(o.report.CutError, err)
		o.report.Deleted += n
		o.report.Cut += len(list)
	}()
}

// replanOutliers takes the Services whose endpoints are ejected or return. It reports whether there are any.
func (p *Proxier) replanOutliers() bool {
	for _, name := range p.outliers.replan() {
		p.replan[name] = true
	}
	return len(p.replan) > 0
}

// noteOutliers tells the outliers of a plan, and returns what they cannot honor. The first Service that asks for refusals
// has the program notice them.
func (p *Proxier) noteOutliers(name state.Name, planned *plan.Service) []state.Problem {
	refusals, problems := p.outliers.set(name, planned)
	if !refusals || p.node.refusing {
		return problems
	}
	p.node.refusing, p.node.shared.Refusing = true, true
	for _, name := range p.dataplane.SetEnvironment(p.node.shared) {
		p.replan[name] = true
	}
	return problems
}
