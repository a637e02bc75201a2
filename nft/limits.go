package nft

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// What a service port gets when it meets a limit. Endpoints are never the price: no port keeps a dead endpoint because
// of a limit, and no port can use up what another port without affinity needs.
//
//	limit                                        what is served instead
//	4,096 endpoints of a port with affinity      all endpoints, without affinity
//	65,536 slots of a pool                       all endpoints, each with one slot; of more endpoints, the first ones
//	8 timeouts that are not rungs                the next longer rung
//	524,287 service ports of a family            nothing: its frontends refuse clients
//
// The first two concern one port alone. The others end when there is room: then Retry names the port.

// exactTimeouts is how many different affinity timeouts a family's table has beside the rungs. Each timeout may need a
// class for each draw and pool, and a new class costs more the more classes there are, because the kernel validates the
// graph of chains: 0.2 ms with 34 classes, 2.4 ms with 1,000, 16 ms with 3,800 (at 10,000 services). So a tenant that
// changes its timeout with each update costs the others little.
const exactTimeouts = 8

const rungCount = 6

// rungs are the timeouts that are always available, in order. The default of Kubernetes and its maximum are among them.
func rungs() [rungCount]time.Duration {
	return [...]time.Duration{
		time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	}
}

func isRung(timeout time.Duration) bool {
	list := rungs()
	return slices.Contains(list[:], timeout)
}

// rungFor is the shortest rung that is at least as long, or the longest rung.
func rungFor(timeout time.Duration) time.Duration {
	list := rungs()
	at, _ := slices.BinarySearch(list[:], timeout)
	return list[min(at, len(list)-1)]
}

// shortfall is what a port gets less than it asked for. Each text names the limit and what is served instead.
type shortfall []string

func (s *shortfall) add(format string, args ...any) { *s = append(*s, fmt.Sprintf(format, args...)) }

// fit returns the port as the program can serve it.
func (tb *table) fit(want *Port, short *shortfall) Port {
	fits := *want
	fits.Cluster = fitSlots(want.Method, want.Cluster, short)
	fits.Local = fitSlots(want.Method, want.Local, short)
	if want.Method == SourceHash && want.Affinity == 0 && len(tb.hash.byKey) >= maxTables {
		fits.Method = Random
		short.add("all %d hash tables are in use; endpoints are picked at random until the Service changes", maxTables)
	}
	if want.Affinity > 0 && len(fits.Cluster)+len(fits.Local) > 0 {
		fits.Affinity = tb.fitAffinity(&fits, short)
	}
	return fits
}

// fitSlots returns endpoints that need no more slots than a pool can have.
func fitSlots(method Method, list []Endpoint, short *shortfall) []Endpoint {
	most := maxSlots
	if method == SourceHash {
		most = int(maglevSize(len(list)))
	}
	total := 0
	for i := range list {
		total += int(max(list[i].Slots, 1))
	}
	switch {
	case total <= most:
		return list
	case len(list) > most:
		short.add("%d endpoints are more than the %d slots of a pool; the first %d by address are served", len(list), most, most)
		list = list[:most]
	default:
		short.add("the weights of %d endpoints need %d slots, more than the %d of a pool; "+
			"all endpoints are served, with the same weight", len(list), total, most)
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].Slots = 1
	}
	return list
}

// fitAffinity returns the affinity that the port can have.
func (tb *table) fitAffinity(want *Port, short *shortfall) time.Duration {
	if len(want.Cluster)+len(want.Local) > maxOrdinals {
		if n := sizeOfUnion(want.Cluster, want.Local); n > maxOrdinals {
			short.add("%d endpoints are more than the %d that a service port with session affinity can have; "+
				"all of them are served, without affinity", n, maxOrdinals)
			return 0
		}
	}
	if isRung(want.Affinity) || tb.classes.exact[want.Affinity] > 0 || len(tb.classes.exact) < exactTimeouts {
		return want.Affinity
	}
	rung := rungFor(want.Affinity)
	short.add("%d other timeouts of session affinity are in use; the timeout is %s instead of %s until there is room",
		exactTimeouts, duration(rung), duration(want.Affinity))
	return rung
}

// withoutNumber is a port that has no number, and so no pools. IPVS serves its frontends all the same.
func withoutNumber(want Port) Port {
	want.Cluster, want.Local, want.Affinity = nil, nil, 0
	want.Frontends = slices.Clone(want.Frontends)
	for i := range want.Frontends {
		fe := &want.Frontends[i]
		if fe.Pool != NoPool && fe.Refusal == NoRefusal && !fe.IPVS {
			fe.Refusal = Reject
		}
		fe.Pool = NoPool
	}
	return want
}

// waiting has the service ports that a limit shared by all ports concerns.
type waiting struct {
	timeouts waitlist[time.Duration]
	numbers  waitlist[string] // by the name of the port
}

// waitlist has service ports by what they wait for.
type waitlist[K cmp.Ordered] struct {
	groups map[K]*waitGroup
	clock  uint64 // counts groups
}

// waitGroup are the ports that wait for the same thing.
type waitGroup struct {
	since uint64
	ports map[string]bool
}

func (l *waitlist[K]) any() bool { return len(l.groups) > 0 }

func (l *waitlist[K]) add(what K, port string) {
	if l.groups == nil {
		l.groups = map[K]*waitGroup{}
	}
	if l.groups[what] == nil {
		l.clock++
		l.groups[what] = &waitGroup{since: l.clock, ports: map[string]bool{}}
	}
	l.groups[what].ports[port] = true
}

func (l *waitlist[K]) remove(what K, port string) {
	if g := l.groups[what]; g != nil {
		delete(g.ports, port)
		if len(g.ports) == 0 {
			delete(l.groups, what)
		}
	}
}

// take removes the groups that have waited longest, as many as there is room for, and returns their ports.
func (l *waitlist[K]) take(room int) (ports []string) {
	if room <= 0 || !l.any() {
		return nil
	}
	order := slices.SortedFunc(maps.Keys(l.groups), func(a, b K) int {
		return cmp.Compare(l.groups[a].since, l.groups[b].since)
	})
	for _, what := range order[:min(room, len(order))] {
		ports = slices.AppendSeq(ports, maps.Keys(l.groups[what].ports))
		delete(l.groups, what)
	}
	return ports
}

// noteWaiting notes what a port waits for.
func (tb *table) noteWaiting(p *port, want, fits *Port) {
	var timeout time.Duration
	if fits.Affinity != 0 && fits.Affinity != want.Affinity {
		timeout = want.Affinity
	}
	if p.waitsFor != timeout {
		tb.waiting.timeouts.remove(p.waitsFor, p.name)
	}
	if p.waitsFor = timeout; timeout != 0 {
		tb.waiting.timeouts.add(timeout, p.name)
	}
	if p.number == 0 {
		tb.waiting.numbers.add(p.name, p.name)
	} else {
		tb.waiting.numbers.remove(p.name, p.name)
	}
}

func (tb *table) stopWaiting(p *port) {
	tb.waiting.numbers.remove(p.name, p.name)
	tb.waiting.timeouts.remove(p.waitsFor, p.name)
}

// takeWaiting returns the names of ports for which there is room, sorted. They no longer wait.
func (tb *table) takeWaiting() []string {
	names := tb.waiting.timeouts.take(exactTimeouts - len(tb.classes.exact))
	names = append(names, tb.waiting.numbers.take(tb.numbers.room())...)
	for _, name := range names {
		tb.ports[name].waitsFor = 0
	}
	slices.Sort(names)
	return names
}

// PortID names a service port.
type PortID struct {
	Family Family
	Name   string
}

// room lists the service ports that got less than they asked for, and for which there is room.
func (e *Engine) room() (ports []PortID) {
	for _, tb := range e.active {
		for _, name := range tb.takeWaiting() {
			ports = append(ports, PortID{tb.family, name})
		}
	}
	return ports
}
