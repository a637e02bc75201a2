package dataplane

import (
	"fmt"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
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

// add takes in a service port. One that comes back stays for twice as long.
func (q quarantine) add(service state.Name, refused *nft.RefusedError) {
	var last quarantined
	if p := q[refused.Port]; p != nil {
		last = *p
	}
	wait := longer(last.wait)
	q[refused.Port] = &quarantined{service: service, reason: refused.Error(), wait: wait, until: time.Now().Add(wait)}
}

// keepsBack reports whether a port is in quarantine now, and why. After the backoff the port is offered again.
func (q quarantine) keepsBack(id contents.PortID) (problem string, kept bool) {
	p := q[id]
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
func (q quarantine) holds(id contents.PortID) bool {
	p := q[id]
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

// How often a refused port is tried again. To see whether another tool's virtual server has gone costs one question to
// the kernel. To offer a port that the kernel refused costs more: nft writes both tables as a whole when the port comes
// back. That is tried less and less often, because the kernel may refuse it for good (IPv6 routes where a sysctl has
// disabled IPv6, for example).
const (
	obstaclePeriod = 10 * time.Second
	firstBackoff   = time.Minute
	maxBackoff     = time.Hour
)

// longer returns the backoff after one that was not enough.
func longer(last time.Duration) time.Duration { return min(max(2*last, firstBackoff), maxBackoff) }
