package elements

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/chains"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
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

// Shortfall is what a port gets less than it asked for. Each text names the limit and what is served instead.
type Shortfall []string

func (s *Shortfall) add(format string, args ...any) { *s = append(*s, fmt.Sprintf(format, args...)) }

// fit returns the port as the program can serve it. It gets how many hash tables are in the way of a port, and how many classes each
// affinity timeout has that is not a rung.
func fit(want *contents.Port, tables func(port string) int, exact map[time.Duration]int, short *Shortfall) contents.Port {
	fits := *want
	fits.Cluster = fitSlots(want.Method, want.Cluster, short)
	fits.Local = fitSlots(want.Method, want.Local, short)
	if want.Method.Hashes() && want.Affinity == 0 && !want.KeepsPorts() && tables(want.Name) >= program.MaxTables {
		fits.Method = program.Random
		short.add("all %d hash tables are in use; endpoints are picked at random until the Service changes", program.MaxTables)
	}
	if want.Affinity > 0 && len(fits.Cluster)+len(fits.Local) > 0 {
		fits.Affinity = fitAffinity(&fits, exact, short)
	}
	return fits
}

// fitSlots returns endpoints that need no more slots than a pool can have.
func fitSlots(method program.Method, list []contents.Endpoint, short *Shortfall) []contents.Endpoint {
	most := program.MaxSlots
	if method.Hashes() {
		most = int(hashing.Size(len(list)))
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
func fitAffinity(want *contents.Port, exact map[time.Duration]int, short *Shortfall) time.Duration {
	if len(want.Cluster)+len(want.Local) > program.MaxOrdinals {
		if n := sizeOfUnion(want.Cluster, want.Local); n > program.MaxOrdinals {
			short.add("%d endpoints are more than the %d that a service port with session affinity can have; "+
				"all of them are served, without affinity", n, program.MaxOrdinals)
			return 0
		}
	}
	if chains.IsRung(want.Affinity) || exact[want.Affinity] > 0 || len(exact) < chains.ExactTimeouts {
		return want.Affinity
	}
	rung := chains.RungFor(want.Affinity)
	short.add("%d other timeouts of session affinity are in use; the timeout is %s instead of %s until there is room",
		chains.ExactTimeouts, rule.DurationText(rung), rule.DurationText(want.Affinity))
	return rung
}

// withoutNumber is a port that has no number, and so no pools. IPVS serves its frontends all the same.
func withoutNumber(want contents.Port) contents.Port {
	want.Cluster, want.Local, want.Affinity = nil, nil, 0
	want.Frontends = slices.Clone(want.Frontends)
	for i := range want.Frontends {
		fe := &want.Frontends[i]
		if fe.Pool != program.NoPool && fe.Refusal == program.NoRefusal && !fe.IPVS {
			fe.Refusal = program.Reject
		}
		fe.Pool = program.NoPool
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

func (l *waitlist[K]) add(what K, name string) {
	if l.groups == nil {
		l.groups = map[K]*waitGroup{}
	}
	if l.groups[what] == nil {
		l.clock++
		l.groups[what] = &waitGroup{since: l.clock, ports: map[string]bool{}}
	}
	l.groups[what].ports[name] = true
}

func (l *waitlist[K]) remove(what K, name string) {
	if g := l.groups[what]; g != nil {
		delete(g.ports, name)
		if len(g.ports) == 0 {
			delete(l.groups, what)
		}
	}
}

// take removes the groups that have waited longest, as many as there is room for, and returns their ports.
func (l *waitlist[K]) take(room int) (names []string) {
	if room <= 0 || !l.any() {
		return nil
	}
	order := slices.SortedFunc(maps.Keys(l.groups), func(a, b K) int {
		return cmp.Compare(l.groups[a].since, l.groups[b].since)
	})
	for _, what := range order[:min(room, len(order))] {
		names = slices.AppendSeq(names, maps.Keys(l.groups[what].ports))
		delete(l.groups, what)
	}
	return names
}

// take returns the names of ports that wait for what there is room for, sorted.
func (l *waiting) take(timeouts, numbers int) []string {
	names := append(l.timeouts.take(timeouts), l.numbers.take(numbers)...)
	slices.Sort(names)
	return names
}
