package dataplane

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// quarantined is a service port that the nft engine does not have, because the kernel refused it. Without it, the kernel
// takes all other ports. It is offered to the engine again after a backoff.
type quarantined struct {
	service state.Name
	reason  string
	until   time.Time
	wait    time.Duration
	offered bool // the engine has it again, and no Apply has succeeded since
}

// quarantine has the service ports that the kernel refused.
type quarantine map[contents.PortID]*quarantined

// maxAtOnce bounds how many service ports one Apply puts in quarantine. If the kernel still refuses something, the loop
// calls Apply again later.
const maxAtOnce = 16

// applyRules hands the changes to nft. A service port that the kernel refuses goes into quarantine, and the others are
// tried again at once.
func (d *Dataplane) applyRules(r *Result) {
	for range maxAtOnce {
		d.note(r, d.ruleset.Apply)
		var refused *nft.RefusedError
		if !errors.As(r.Err, &refused) || !d.isolate(refused, r) {
			break
		}
	}
	if r.Err == nil && r.Outcome == kernel.Applied {
		d.quarantine.end()
	}
}

// isolate takes a service port away from the nft engine, and has its Service planned again, which reports the Problem.
func (d *Dataplane) isolate(refused *nft.RefusedError, r *Result) bool {
	service, found := d.serviceOf(refused.Port)
	if !found {
		return false
	}
	d.quarantine.add(service, refused)
	d.ruleset.Delete(refused.Port.Family, refused.Port.Name)
	r.Replan = append(r.Replan, service)
	return true
}

// add takes in a service port. One that comes back stays for twice as long.
func (q quarantine) add(service state.Name, refused *nft.RefusedError) {
	var last quarantined
	if p := q[refused.Port]; p != nil {
		last = *p
	}
	wait := min(max(2*last.wait, firstBackoff), maxBackoff)
	q[refused.Port] = &quarantined{service: service, reason: refused.Error(), wait: wait, until: time.Now().Add(wait)}
}

func (d *Dataplane) serviceOf(id contents.PortID) (state.Name, bool) {
	for name, s := range d.services {
		if slices.ContainsFunc(s.ports, func(p servedPort) bool { return p.id() == id }) {
			return name, true
		}
	}
	return state.Name{}, false
}

// keepsBack reports whether a port is in quarantine now, and why. After the backoff the port is offered again.
func (q quarantine) keepsBack(key portKey) (problem string, kept bool) {
	p := q[key.id()]
	if p == nil || p.offered {
		return "", false
	}
	if !time.Now().Before(p.until) {
		p.offered = true
		return "", false
	}
	return fmt.Sprintf("%s; nobody serves the port, and it is tried again every %s", p.reason, p.wait), true
}

// holds reports whether the nft engine does not have a port.
func (q quarantine) holds(key portKey) bool {
	p := q[key.id()]
	return p != nil && !p.offered
}

// end forgets the ports that the kernel has taken now.
func (q quarantine) end() {
	for id, p := range q {
		if p.offered {
			delete(q, id)
		}
	}
}

// released lists the Services with ports whose backoff is over.
func (q quarantine) released(now time.Time) (names []state.Name) {
	for _, p := range q {
		if !p.offered && !now.Before(p.until) && !slices.Contains(names, p.service) {
			names = append(names, p.service)
		}
	}
	return names
}
