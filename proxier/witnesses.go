package proxier

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// findMembers finds the Services of endpoints. It skips Services that want nothing of this.
func (o *Outliers) findMembers(unknown map[netip.AddrPort][]outlier.Member) {
	addrs := map[netip.Addr]bool{}
	for at := range unknown {
		addrs[at.Addr()] = true
	}
	for _, sl := range o.Store.Slices() {
		for i := range sl.Endpoints {
			if e := &sl.Endpoints[i]; addrs[e.Addr] {
				o.addMember(unknown, sl, e)
			}
		}
	}
}

func (o *Outliers) addMember(unknown map[netip.AddrPort][]outlier.Member, sl *state.Slice, e *state.Endpoint) {
	for _, p := range sl.Ports {
		at := netip.AddrPortFrom(e.Addr, p.Port)
		list, wanted := unknown[at]
		has := slices.ContainsFunc(list, func(m outlier.Member) bool { return m.Service == sl.Service })
		if p.Protocol != state.TCP || !wanted || has {
			continue
		}
		svc, all := o.Store.Service(sl.Service)
		if svc != nil && svc.Outliers.Mode != state.OutlierOff {
			unknown[at] = append(list, outlier.Member{
				Service: sl.Service, Word: wordOfEndpoint(e), Nodes: o.nodesOf(all), Refusals: svc.Outliers.Refusals,
			})
		}
	}
}

// maxWitnesses is how many endpoints are asked whether this node still has its network. One answer is enough.
const maxWitnesses = 4

// askWitnesses asks endpoints on other nodes than these.
func (o *Outliers) askWitnesses(ctx context.Context, nodes []string) outlier.Witnesses {
	list := o.witnesses(nodes)
	if len(list) == 0 {
		return outlier.NoWitness
	}
	answers := make(chan outlier.Answer, len(list))
	for _, at := range list {
		go func() { answers <- o.Ask(ctx, at) }()
	}
	for range list {
		switch <-answers {
		case outlier.Good, outlier.Refused, outlier.HostAnswers:
			return outlier.SomeAnswer
		}
	}
	return outlier.AllSilent
}

// witnesses chooses endpoints: one of the API server, which no tenant can write, and random ones of different
// namespaces.
func (o *Outliers) witnesses(failing []string) (list []netip.AddrPort) {
	_, servers := o.Store.Service(kubernetesService())
	all := o.Store.Slices()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	o.mu.Lock()
	suspects := o.detector.Addresses()
	o.mu.Unlock()
	namespaces := map[string]bool{}
	for _, sl := range append(slices.Clone(servers), all...) {
		if len(list) == maxWitnesses {
			break
		}
		if namespaces[sl.Service.Namespace] && len(list) > maxWitnesses/2 {
			continue // leave room for others; half of the witnesses may come from one namespace
		}
		if at, ok := o.witness(sl, failing, suspects); ok && !slices.Contains(list, at) {
			list = append(list, at)
			namespaces[sl.Service.Namespace] = true
		}
	}
	return list
}

// witness chooses a ready endpoint of a slice on another node.
func (o *Outliers) witness(sl *state.Slice, failing []string, suspects map[netip.Addr]bool) (at netip.AddrPort, ok bool) {
	port := slices.IndexFunc(sl.Ports, func(p state.SlicePort) bool { return p.Protocol == state.TCP })
	if port < 0 || len(sl.Endpoints) == 0 {
		return at, false
	}
	first := rand.IntN(len(sl.Endpoints))
	for i := range sl.Endpoints {
		e := &sl.Endpoints[(first+i)%len(sl.Endpoints)]
		if e.Ready && e.Node != o.Settings.NodeName && !slices.Contains(failing, e.Node) && !suspects[e.Addr] {
			return netip.AddrPortFrom(e.Addr, sl.Ports[port].Port), true
		}
	}
	return at, false
}

// firstLooks finds out which endpoints answer this node at all. A network policy may keep the node away from an
// endpoint that serves its clients: then the node's own questions say nothing. Only Services that eject are looked at.
type firstLooks struct {
	of    map[state.Name][]netip.AddrPort
	known map[netip.AddrPort]*firstLook
	queue state.Turns[netip.AddrPort] // so that the many endpoints of a tenant do not keep others waiting
	later []netip.AddrPort            // those that gave no answer; they follow when lookAgain is over
	since time.Time                   // when later got its first one
}

type firstLook struct {
	namespace string // which has turns for it
	services  int
	tries     int // without a good answer
	reached   bool
}

const (
	// looksAtOnce is how many endpoints are looked at in each outlierPeriod.
	looksAtOnce = 10
	lookAgain   = 30 * time.Second
	// looksInARow is how often an endpoint is looked at before lookAgain: one answer may get lost, or be late.
	looksInARow = 4
)

func newFirstLooks() firstLooks {
	return firstLooks{
		of: map[state.Name][]netip.AddrPort{}, known: map[netip.AddrPort]*firstLook{}, queue: state.NewTurns[netip.AddrPort](),
	}
}

// set tells the endpoints of a Service that ejects, sorted; nil: it does not, or is gone.
func (l *firstLooks) set(name state.Name, list []netip.AddrPort) {
	before := l.of[name]
	if slices.Equal(before, list) {
		return
	}
	for _, at := range list {
		if l.known[at] == nil {
			l.known[at] = &firstLook{namespace: name.Namespace}
			l.push(at)
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
	l.compact()
}

// push has an endpoint looked at when its turn comes.
func (l *firstLooks) push(at netip.AddrPort) {
	if is := l.known[at]; is != nil && !is.reached {
		l.queue.Push(is.namespace, at)
	}
}

// compact forgets endpoints in the queue that are gone. A tenant whose endpoints come and go all the time must not make
// the queue long.
func (l *firstLooks) compact() {
	if l.queue.Len()+len(l.later) <= 2*len(l.known)+1000 {
		return
	}
	l.queue, l.later = state.NewTurns[netip.AddrPort](), nil
	for at := range l.known {
		l.push(at)
	}
}

// due returns endpoints to look at.
func (l *firstLooks) due(now time.Time) (list []netip.AddrPort) {
	if len(l.later) > 0 && now.Sub(l.since) >= lookAgain {
		for _, at := range l.later {
			l.push(at)
		}
		l.later = nil
	}
	for len(list) < looksAtOnce {
		_, at, some := l.queue.Pop()
		if !some {
			break
		}
		if is := l.known[at]; is != nil && !is.reached {
			list = append(list, at)
		}
	}
	return list
}

func (l *firstLooks) ended(at netip.AddrPort, good bool, now time.Time) {
	is := l.known[at]
	switch {
	case is == nil || is.reached:
	case good:
		is.reached = true
	default:
		l.failed(is, at, now)
	}
}

func (l *firstLooks) failed(is *firstLook, at netip.AddrPort, now time.Time) {
	if is.tries++; is.tries%looksInARow != 0 {
		l.push(at)
		return
	}
	if len(l.later) == 0 {
		l.since = now
	}
	l.later = append(l.later, at)
}

// reached reports whether an endpoint answered this node before. Of endpoints that no Service ejects, nothing is known,
// and nothing depends on it.
func (l *firstLooks) reached(at netip.AddrPort) bool {
	is := l.known[at]
	return is == nil || is.reached
}
