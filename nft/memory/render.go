package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/program"
)

// String prints both tables.
func (k *Kernel) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b strings.Builder
	for _, f := range program.Families() {
		if tb := k.tables[f.Index()]; tb != nil {
			tb.print(&b, f)
		}
	}
	return b.String()
}

func (tb *memoryTable) print(b *strings.Builder, f program.Family) {
	fmt.Fprintf(b, "table %s %s {\n\tcomment %q\n", f, program.TableName, program.LayoutComment)
	for id := range program.SetCount {
		if s := tb.sets[id.Name()]; s != nil {
			s.print(b)
		}
	}
	for _, name := range tb.sortedChains(f) {
		tb.chains[name].print(b, name)
	}
	b.WriteString("}\n")
}

func (s *memorySet) print(b *strings.Builder) {
	fmt.Fprintf(b, "\t%s %s {\n", program.SetKeyword(s.def.IsMap()), s.def.Name)
	for _, line := range s.def.Declaration() {
		fmt.Fprintf(b, "\t\t%s\n", line)
	}
	if texts := s.texts(); len(texts) > 0 {
		fmt.Fprintf(b, "\t\telements = { %s }\n", strings.Join(texts, ",\n\t\t\t     "))
	}
	b.WriteString("\t}\n\n")
}

// texts prints the elements, sorted.
func (s *memorySet) texts() []string {
	var arena []byte
	var list []program.Element
	for _, e := range s.sorted() {
		e.Offset = uint32(len(arena))
		arena = append(arena, e.arena...)
		list = append(list, e.Element)
	}
	texts := program.ElementTexts(s.def, list, arena)
	slices.Sort(texts)
	return texts
}

func (c *memoryChain) print(b *strings.Builder, name string) {
	fmt.Fprintf(b, "\tchain %s {\n", name)
	if c.base != nil {
		fmt.Fprintf(b, "\t\t%s\n", c.base.Header())
	}
	for _, r := range c.rules {
		fmt.Fprintf(b, "\t\t%s\n", r)
	}
	b.WriteString("\t}\n\n")
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
func (tb *memoryTable) sortedChains(f program.Family) []string {
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
