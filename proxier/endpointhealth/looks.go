package endpointhealth

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// firstLooks finds out which endpoints answer this node at all. A network policy may keep the node away from an
// endpoint that serves its clients: then the node's own questions say nothing. Only Services that eject are looked at.
type firstLooks struct {
	of    map[state.Name][]netip.AddrPort
	known map[netip.AddrPort]*firstLook
	queue state.Turns[netip.AddrPort] // so that the many endpoints of a tenant do not keep others waiting
}

type firstLook struct {
	namespace string // which has turns for it
	services  int
	tries     int       // without a good answer
	next      time.Time // not to be looked at earlier
	reached   bool
}

const (
	// looksAtOnce is how many endpoints are looked at in each lookPeriod, and turnsAtOnce how many have a turn then.
	looksAtOnce = 10
	turnsAtOnce = 100
	lookAgain   = 30 * time.Second
	// looksInARow is how often an endpoint is looked at before lookAgain: one answer may get lost, or be late.
	looksInARow = 4
)

func newFirstLooks() firstLooks {
	return firstLooks{
		of: map[state.Name][]netip.AddrPort{}, known: map[netip.AddrPort]*firstLook{}, queue: state.NewTurns[netip.AddrPort](),
	}
}

// set records the endpoints of a Service that ejects, sorted; nil: it does not, or it was deleted.
func (l *firstLooks) set(name state.Name, list []netip.AddrPort) {
	before := l.of[name]
	if slices.Equal(before, list) {
		return
	}
	for _, at := range list {
		if is := l.known[at]; is == nil {
			l.known[at] = &firstLook{namespace: name.Namespace}
			l.queue.Push(name.Namespace, at)
		} else if !is.reached && is.namespace != name.Namespace {
			l.queue.Push(name.Namespace, at) // each namespace has turns for the endpoints that it has
		}
		l.known[at].services++
	}
	for _, at := range before {
		if l.known[at].services--; l.known[at].services == 0 {
			delete(l.known, at)
		}
	}
	if l.of[name] = list; len(list) == 0 {
		delete(l.of, name)
	}
	if l.queue.Len() <= 2*len(l.known)+1000 {
		return
	}
	// A tenant whose endpoints come and go all the time must not make the queue long.
	l.queue = state.NewTurns[netip.AddrPort]()
	for at, is := range l.known {
		if !is.reached {
			l.queue.Push(is.namespace, at)
		}
	}
}

// due returns endpoints to look at.
func (l *firstLooks) due(now time.Time) (list []netip.AddrPort) {
	for range min(turnsAtOnce, l.queue.Len()) {
		namespace, at, _ := l.queue.Pop()
		is := l.known[at]
		switch {
		case is == nil || is.reached:
		case now.Before(is.next):
			l.queue.Push(namespace, at)
		default:
			is.namespace = namespace // the one that has turns soonest
			list = append(list, at)
		}
		if len(list) == looksAtOnce {
			break
		}
	}
	return list
}

// ended records the answer of an endpoint.
func (l *firstLooks) ended(at netip.AddrPort, good bool, now time.Time) {
	is := l.known[at]
	if is == nil || is.reached {
		return
	}
	if is.reached = good; good {
		return
	}
	if is.tries++; is.tries%looksInARow == 0 {
		is.next = now.Add(lookAgain)
	}
	l.queue.Push(is.namespace, at)
}

// reached reports whether an endpoint answered this node before. Of endpoints that no Service ejects, nothing is known,
// and nothing depends on it.
func (l *firstLooks) reached(at netip.AddrPort) bool {
	is := l.known[at]
	return is == nil || is.reached
}
