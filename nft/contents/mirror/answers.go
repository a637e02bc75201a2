package mirror

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// answers own the map from an endpoint back to the frontend that its answers come from (program.Answers). An endpoint
// that several frontends want is not in the map: the program could not know which connection a packet belongs to. So the
// map depends only on what is wanted now, and is the same on every node.
type answers struct {
	wanted map[netip.AddrPort]map[netip.AddrPort]int32 // the frontends of an endpoint, with their numbers of service ports
	before map[netip.AddrPort]netip.AddrPort           // what the kernel has for the endpoints that have changed
}

func newAnswers() answers {
	return answers{map[netip.AddrPort]map[netip.AddrPort]int32{}, map[netip.AddrPort]netip.AddrPort{}}
}

// answering is what a service port wants in the map.
type answering struct {
	frontend  netip.AddrPort
	endpoints []netip.AddrPort // sorted
}

func answeringOf(p *contents.Port) answering {
	out := answering{frontend: p.Answers}
	if !out.frontend.IsValid() {
		return out
	}
	for _, list := range [][]contents.Endpoint{p.Cluster, p.Local} {
		for i := range list {
			out.endpoints = append(out.endpoints, list[i].Addr)
		}
	}
	slices.SortFunc(out.endpoints, netip.AddrPort.Compare)
	out.endpoints = slices.Compact(out.endpoints)
	return out
}

// update takes over what a service port wants. It returns how many of its endpoints other frontends want as well.
func (a *answers) update(p *port, want *contents.Port) (shared int) {
	next := answeringOf(want)
	for _, e := range next.endpoints {
		a.count(e, next.frontend, 1)
	}
	for _, e := range p.answering.endpoints {
		a.count(e, p.answering.frontend, -1)
	}
	for _, e := range next.endpoints {
		if len(a.wanted[e]) > 1 {
			shared++
		}
	}
	p.answering = next
	return shared
}

func (a *answers) count(endpoint, frontend netip.AddrPort, by int32) {
	if _, noted := a.before[endpoint]; !noted {
		a.before[endpoint] = a.of(endpoint)
	}
	if a.wanted[endpoint] == nil {
		a.wanted[endpoint] = map[netip.AddrPort]int32{}
	}
	if a.wanted[endpoint][frontend] += by; a.wanted[endpoint][frontend] == 0 {
		delete(a.wanted[endpoint], frontend)
	}
	if len(a.wanted[endpoint]) == 0 {
		delete(a.wanted, endpoint)
	}
}

// of is the frontend in the map for an endpoint; the zero AddrPort: there is none.
func (a *answers) of(endpoint netip.AddrPort) (frontend netip.AddrPort) {
	if len(a.wanted[endpoint]) == 1 {
		for frontend = range a.wanted[endpoint] {
		}
	}
	return frontend
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
