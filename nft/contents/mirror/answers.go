package mirror

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// answers own the map from an endpoint back to the frontend that its answers come from (program.Answers). If several Services
// want an endpoint, the oldest has it: nobody takes it away by listing it in a slice of his own. If that Service has several
// frontends for it, it is not in the map: the program could not know which connection a packet belongs to. So the map depends
// only on what is wanted now, and is the same on every node.
type answers struct {
	wanted map[netip.AddrPort][]wish         // for each endpoint, the oldest Service first
	before map[netip.AddrPort]netip.AddrPort // what the kernel has for the endpoints that have changed
	again  map[string]bool                   // the service ports that won or lost an endpoint through others
}

// wish is what a service port wants for its endpoints.
type wish struct {
	created  int64
	owner    string // the name of the service port
	frontend netip.AddrPort
}

func (w wish) compare(o wish) int {
	return cmp.Or(cmp.Compare(w.created, o.created), cmp.Compare(w.owner, o.owner))
}

func (w wish) service() string {
	name, _, _ := strings.Cut(w.owner, ":")
	return name
}

// answering is what a service port wants in the map.
type answering struct {
	wish
	endpoints []netip.AddrPort // sorted
}

func answeringOf(p *contents.Port) answering {
	if !p.Answers.IsValid() {
		return answering{}
	}
	out := answering{wish: wish{p.Created, p.Name, p.Answers}}
	for _, list := range [][]contents.Endpoint{p.Cluster, p.Local} {
		for i := range list {
			out.endpoints = append(out.endpoints, list[i].Addr)
		}
	}
	slices.SortFunc(out.endpoints, netip.AddrPort.Compare)
	out.endpoints = slices.Compact(out.endpoints)
	return out
}

// update takes over what a service port wants, in place of what it wanted before. It returns how many of its endpoints answer
// for another frontend or for none, and another service port that lists the first of them.
func (a *answers) update(was *answering, want *contents.Port) (lost int, holder string) {
	old, next := *was, answeringOf(want)
	differ := func(e netip.AddrPort, other answering) bool {
		_, both := slices.BinarySearchFunc(other.endpoints, e, netip.AddrPort.Compare)
		return !both || old.wish != next.wish
	}
	for _, e := range old.endpoints {
		if differ(e, next) {
			a.change(e, old.wish, false)
		}
	}
	for _, e := range next.endpoints {
		if differ(e, old) {
			a.change(e, next.wish, true)
		}
	}
	*was = next
	for _, e := range next.endpoints {
		if a.of(e) == next.frontend {
			continue
		}
		if lost++; lost > 1 {
			continue
		}
		if holder = a.wanted[e][0].owner; holder == next.owner {
			holder = a.wanted[e][1].owner
		}
	}
	return lost, holder
}

// change adds a wish to those of an endpoint, or removes it.
func (a *answers) change(e netip.AddrPort, one wish, added bool) {
	from, list := a.of(e), a.wanted[e]
	if _, noted := a.before[e]; !noted {
		a.before[e] = from
	}
	var firsts []string
	if len(list) > 0 {
		firsts = append(firsts, list[0].owner)
	}
	i, _ := slices.BinarySearchFunc(list, one, wish.compare)
	if added {
		list = slices.Insert(list, i, one)
	} else {
		list = slices.Delete(list, i, i+1)
	}
	if a.wanted[e] = list; len(list) == 0 {
		delete(a.wanted, e)
	} else {
		firsts = append(firsts, list[0].owner)
	}
	for _, owner := range firsts {
		if owner != one.owner && a.of(e) != from {
			a.again[owner] = true
		}
	}
}

// of is the frontend in the map for an endpoint; the zero AddrPort: there is none.
func (a *answers) of(endpoint netip.AddrPort) (frontend netip.AddrPort) {
	list := a.wanted[endpoint]
	if len(list) == 0 || len(list) > 1 && list[0].service() == list[1].service() {
		return frontend
	}
	return list[0].frontend
}

// takeAgain returns the service ports whose part has changed through others, since it was called last.
func (a *answers) takeAgain() (names []string) {
	names = slices.Sorted(maps.Keys(a.again))
	clear(a.again)
	return names
}

// write writes what has changed since the last transaction.
func (a *answers) write(w program.Writer) {
	for _, e := range slices.SortedFunc(maps.Keys(a.before), netip.AddrPort.Compare) {
		from, to := a.before[e], a.of(e)
		if from == to {
			continue
		}
		if from.IsValid() {
			w.Remove(program.Answers, answerElement(w, e, netip.AddrPort{}))
		}
		if to.IsValid() {
			w.Insert(program.Answers, answerElement(w, e, to))
		}
	}
	if len(a.before) > 0 {
		a.before = map[netip.AddrPort]netip.AddrPort{}
	}
}

// rewrite has write add all elements, as for an empty table.
func (a *answers) rewrite() {
	clear(a.before)
	for e := range a.wanted {
		a.before[e] = netip.AddrPort{}
	}
}

// list adds the elements of some endpoints, as far as the kernel is to have them.
func (a *answers) list(w program.Writer, endpoints ...netip.AddrPort) {
	for _, e := range endpoints {
		if frontend := a.of(e); frontend.IsValid() {
			w.Insert(program.Answers, answerElement(w, e, frontend))
		}
	}
}

// answerElement is the element of an endpoint; without a frontend, only its key.
func answerElement(w program.Writer, endpoint, frontend netip.AddrPort) program.Element {
	put := func(at netip.AddrPort) func(*program.Builder) {
		return func(b *program.Builder) { b.Addr(at.Addr()); b.Port(at.Port()) }
	}
	if !frontend.IsValid() {
		return w.Element("", put(endpoint), nil)
	}
	return w.Element("", put(endpoint), put(frontend))
}
