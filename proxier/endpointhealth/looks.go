package endpointhealth

import (
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
)

// firstLooks finds out which endpoints answer this node at all. A network policy may keep the node away from an
// endpoint that serves its clients: then the node's own questions say nothing. Only Services that eject are looked at.
type firstLooks struct {
	known map[netip.AddrPort]*firstLook
	line  schedule.Line[*firstLook] // so that the many endpoints of a tenant do not keep others waiting
}

type firstLook struct {
	at        netip.AddrPort
	namespace string // that waits for it
	services  int
	tries     int // without a good answer
	due       schedule.Entry[*firstLook]
	reached   bool
}

const (
	// looksAtOnce is how many endpoints are looked at in each lookPeriod, and maxLooks how many of the looks have no end yet.
	looksAtOnce = 10
	maxLooks    = 128
	lookAgain   = 30 * time.Second
	// looksInARow is how often an endpoint is looked at before lookAgain: one answer may get lost, or be late.
	looksInARow = 4
)

func newFirstLooks() firstLooks {
	cost := func(*firstLook) time.Duration { return lookPeriod / looksAtOnce }
	return firstLooks{
		known: map[netip.AddrPort]*firstLook{}, line: schedule.NewLine(maxLooks, schedule.NewRates(1, 1, lookPeriod), cost),
	}
}

// set replaces the endpoints of a Service that ejects.
func (l *firstLooks) set(namespace string, before, list []netip.AddrPort, now time.Time) {
	for _, at := range list {
		is := l.known[at]
		if is == nil {
			is = &firstLook{at: at, namespace: namespace}
			is.due.Value = is
			l.known[at] = is
			l.line.Put(&is.due, namespace, now)
		} else if l.line.Shorter(namespace, &is.due) {
			is.namespace = namespace
			l.line.Put(&is.due, namespace, now)
		}
		is.services++
	}
	for _, at := range before {
		is := l.known[at]
		if is.services--; is.services == 0 {
			is.due.Leave()
			delete(l.known, at)
		}
	}
}

// ended records the answer of an endpoint.
func (l *firstLooks) ended(is *firstLook, good bool, now time.Time) {
	l.line.Ended(&is.due)
	is.reached = is.reached || good
	if is.reached || l.known[is.at] != is {
		return
	}
	if is.tries++; is.tries%looksInARow == 0 {
		now = now.Add(lookAgain)
	}
	l.line.Put(&is.due, is.namespace, now)
}

// answered records that an endpoint has answered another question of this node.
func (l *firstLooks) answered(at netip.AddrPort) {
	if is := l.known[at]; is != nil {
		is.reached = true
		is.due.Leave()
	}
}

// reached reports whether an endpoint answered this node before. Of endpoints that no Service ejects, nothing is known,
// and nothing depends on it.
func (l *firstLooks) reached(at netip.AddrPort) bool {
	is := l.known[at]
	return is == nil || is.reached
}
