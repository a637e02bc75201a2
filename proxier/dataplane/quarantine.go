package dataplane

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft"
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
	if r.Err == nil && r.Outcome == nft.Applied {
		d.endQuarantines()
	}
}

// isolate takes a service port away from the nft engine, and has its Service planned again, which reports the Problem.
func (d *Dataplane) isolate(refused *nft.RefusedError, r *Result) bool {
	service, found := d.serviceOf(refused.Port)
	if !found {
		return false
	}
	var last quarantined
	if q := d.quarantine[refused.Port]; q != nil {
		last = *q
	}
	wait := min(max(2*last.wait, firstBackoff), maxBackoff)
	d.quarantine[refused.Port] = &quarantined{
		service: service, reason: refused.Error(), wait: wait, until: time.Now().Add(wait),
	}
	d.ruleset.Delete(refused.Port.Family, refused.Port.Name)
	r.Replan = append(r.Replan, service)
	return true
}

func (d *Dataplane) serviceOf(id nft.PortID) (state.Name, bool) {
	for name, s := range d.services {
		if slices.ContainsFunc(s.ports, func(p servedPort) bool { return p.id() == id }) {
			return name, true
		}
	}
	return state.Name{}, false
}

// keptBack reports whether a port is in quarantine now, and says so. After the backoff the port is offered again.
func (d *Dataplane) keptBack(key portKey) (problem string, kept bool) {
	q := d.quarantine[key.id()]
	if q == nil || q.offered {
		return "", false
	}
	if !time.Now().Before(q.until) {
		q.offered = true
		return "", false
	}
	return fmt.Sprintf("%s; nobody serves the port, and it is tried again every %s", q.reason, q.wait), true
}

// held reports whether the nft engine does not have a port.
func (d *Dataplane) held(key portKey) bool {
	q := d.quarantine[key.id()]
	return q != nil && !q.offered
}

// endQuarantines forgets the ports that the kernel has taken now.
func (d *Dataplane) endQuarantines() {
	for id, q := range d.quarantine {
		if q.offered {
			delete(d.quarantine, id)
		}
	}
}

// released lists the Services with ports whose backoff is over.
func (d *Dataplane) released(now time.Time) (names []state.Name) {
	for _, q := range d.quarantine {
		if !q.offered && !now.Before(q.until) && !slices.Contains(names, q.service) {
			names = append(names, q.service)
		}
	}
	return names
}
