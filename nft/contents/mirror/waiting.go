package mirror

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

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
