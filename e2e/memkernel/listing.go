package memkernel

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
)

// String prints both tables, with all elements sorted, so equal contents print as equal texts.
func (k *NFTables) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := &program.Transaction{}
	for _, f := range program.Families() {
		if tb := k.tables[f.Index()]; tb != nil {
			tb.write(t.For(f))
		}
	}
	return t.Listing()
}

// write makes the table.
func (tb *table) write(w program.Writer) {
	w.Do(program.Operation{Kind: program.AddTable})
	for id := range program.SetCount {
		if s := tb.sets[id.Name()]; s != nil {
			w.Do(program.Operation{Kind: program.AddSet, Name: s.def.Name, Set: s.def, ID: id})
			for _, e := range s.sorted() {
				e.Offset = w.Mark()
				w.Arena = append(w.Arena, e.arena...)
				w.Insert(id, e.Element)
			}
		}
	}
	if tb.flowtable != nil {
		w.Do(program.Operation{Kind: program.AddFlowtable, Name: program.FastPathTable})
	}
	for _, name := range tb.sortedChains(w.Family) {
		c := tb.chains[name]
		w.AddChain(program.Chain{Name: name, Base: c.base, Rules: c.rules})
	}
}

// chainRank is a chain's place in the text: first the fixed chains, then the token chains, then the chains of classes
// by number. The engine creates the chains of a new table in this order.
type chainRank struct {
	group int
	place int
	draw  program.Draw
	name  string
}

func (r chainRank) compare(o chainRank) int {
	return cmp.Or(cmp.Compare(r.group, o.group), cmp.Compare(r.place, o.place), program.CompareDraws(r.draw, o.draw),
		cmp.Compare(r.name, o.name))
}

// sortedChains lists the chains by rank.
func (tb *table) sortedChains(f program.Family) []string {
	ranks := map[string]chainRank{}
	for name := range tb.chains {
		ranks[name] = chainRank{group: 3, name: name}
		prefix, rest, _ := strings.Cut(name, "-")
		if c, ok := program.ParseClass(rest); ok && (prefix+"-" == program.TokenPrefix || prefix+"-" == program.TablePrefix) {
			ranks[name] = chainRank{group: 1, draw: c.Draw, name: prefix}
		}
	}
	everything := program.Program{Family: f, Loopback: true, IPVS: true, Lengths: program.AllLengths(f)}
	for i, c := range everything.Chains() {
		ranks[c.Name] = chainRank{group: 0, place: i}
	}
	if dispatch := tb.sets[program.Dispatch.Name()]; dispatch != nil {
		for _, e := range dispatch.elements {
			ranks[e.Label] = chainRank{group: 2, place: int(e.classNumber())}
		}
	}
	return slices.SortedFunc(maps.Keys(tb.chains), func(a, b string) int { return ranks[a].compare(ranks[b]) })
}

// List reads both tables, as inspect.List reads those of the real kernel.
func (k *NFTables) List(match func(name string) bool) (inspect.Listing, error) {
	both := program.Families()
	return inspect.ListFrom(k, both[:], match)
}

// Line is an element in nft syntax.
type Line struct {
	Family    program.Family
	Set, Text string
}

// Lines lists all elements, sorted by family, set and key.
func (k *NFTables) Lines() (lines []Line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range program.Families() {
		w := program.NewWriter(f)
		if tb := k.tables[f.Index()]; tb != nil {
			tb.write(w)
		}
		for id, d := range (program.Program{Family: f}).Sets() {
			for _, text := range program.ElementTexts(&d, w.Changes[f.Index()][id].Add, w.Arena) {
				lines = append(lines, Line{f, d.Name, text})
			}
		}
	}
	return lines
}
