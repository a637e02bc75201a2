package elements

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// answers own the map from an endpoint back to the frontend that its answers come from (program.Answers). If several Services
// want an endpoint, the oldest has it: nobody takes it away by listing it in a slice of his own. If that Service has several
// frontends for it, it is not in the map: the program could not know which connection a packet belongs to. So the map depends
// only on what is wanted now, and is the same on every node.
type answers struct {
	wanted map[netip.AddrPort][]wish // for each endpoint, the oldest Service first
	ledger *ledger.Ledger
	again  map[string]bool // the service ports that won or lost an endpoint through others
}

func newAnswers(l *ledger.Ledger) answers {
	return answers{wanted: map[netip.AddrPort][]wish{}, ledger: l, again: map[string]bool{}}
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

// serviceOf is the name of the Service that has a port.
func serviceOf(port string) string {
	name, _, _ := strings.Cut(port, ":")
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
	a.put(e)
	for _, owner := range firsts {
		if owner != one.owner && a.of(e) != from {
			a.again[owner] = true
		}
	}
}

// of is the frontend in the map for an endpoint; the zero AddrPort: there is none.
func (a *answers) of(endpoint netip.AddrPort) (frontend netip.AddrPort) {
	list := a.wanted[endpoint]
	if len(list) == 0 || len(list) > 1 && serviceOf(list[0].owner) == serviceOf(list[1].owner) {
		return frontend
	}
	return list[0].frontend
}

// takeAgain returns the service ports whose part has changed through others, since it was called last.
func (a *answers) takeAgain() (names []string) {
	names = slices.Sorted(maps.Keys(a.again))
	a.again = map[string]bool{} // a map keeps the size that it once had, and walking it costs that size
	return names
}

// put makes the map have what is wanted for an endpoint.
func (a *answers) put(e netip.AddrPort) {
	encoded := func(at netip.AddrPort) []byte {
		var b program.Builder
		b.Addr(at.Addr())
		b.Port(at.Port())
		return b.Arena
	}
	if to := a.of(e); to.IsValid() {
		a.ledger.Put(program.Answers, encoded(e), encoded(to))
	} else {
		a.ledger.Drop(program.Answers, encoded(e))
	}
}
