package nft

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Memory is an Engine over a kernel in memory. It needs no privileges and changes nothing on the host. Its kernel
// applies each transaction as a whole. It refuses what nf_tables refuses: elements that clash, names that do not exist,
// and deletions of objects in use. It has no packets: it does not evaluate rules, and the affinity map stays empty.
type Memory struct {
	*Engine
	kernel *memoryKernel
}

// OpenMemory makes an engine over an empty kernel in memory. Options.NetNS has no meaning there.
func OpenMemory(o Options) *Memory {
	k := &memoryKernel{}
	o.Instance = cmp.Or(o.Instance, 1) // equal histories print as equal texts
	return &Memory{Engine: newEngine(k, o), kernel: k}
}

// Restart makes a second engine over the same kernel, as a new process does. The first engine must not be used any
// more.
func (m *Memory) Restart(o Options) (*Memory, error) {
	o.Instance = cmp.Or(o.Instance, m.instance+1)
	e := newEngine(m.kernel, o)
	if err := e.inherit(); err != nil {
		return nil, err
	}
	return &Memory{Engine: e, kernel: m.kernel}, nil
}

// Record makes the kernel in memory call write with the text of each transaction that it applies, in nft syntax and in
// order. Write must not use the Memory.
func (m *Memory) Record(write func(text string)) {
	m.kernel.record = write
}

// String prints what the kernel in memory has, in a form that "nft -f" reads. Elements are sorted, so equal contents
// print as equal texts. Any goroutine may call it.
func (m *Memory) String() string { return m.kernel.String() }

// List reads the kernel in memory, as the function List reads the real one. Any goroutine may call it.
func (m *Memory) List(match func(name string) bool) (Listing, error) {
	both := Families()
	return list(m.kernel, both[:], match)
}

// String prints both tables.
func (k *memoryKernel) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b strings.Builder
	for _, f := range Families() {
		if tb := k.tables[f.index()]; tb != nil {
			tb.print(&b, f)
		}
	}
	return b.String()
}

func (tb *memoryTable) print(b *strings.Builder, f Family) {
	fmt.Fprintf(b, "table %s %s {\n\tcomment %q\n", f, TableName, layoutComment)
	for _, name := range setNames {
		if s := tb.sets[name]; s != nil {
			s.print(b)
		}
	}
	for _, name := range tb.sortedChains(f) {
		tb.chains[name].print(b, name)
	}
	b.WriteString("}\n")
}

func (s *memorySet) print(b *strings.Builder) {
	fmt.Fprintf(b, "\t%s %s {\n", setKeyword(s.def.isMap()), s.def.name)
	for _, line := range s.def.declaration() {
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
	var list []element
	for _, e := range s.sorted() {
		e.offset = uint32(len(arena))
		arena = append(arena, e.arena...)
		list = append(list, e.element)
	}
	texts := elementTexts(s.def, list, arena)
	slices.Sort(texts)
	return texts
}

func (c *memoryChain) print(b *strings.Builder, name string) {
	fmt.Fprintf(b, "\tchain %s {\n", name)
	if c.base != nil {
		fmt.Fprintf(b, "\t\t%s\n", c.base.header())
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
	draw  draw
	name  string
}

func (r chainRank) compare(o chainRank) int {
	return cmp.Or(cmp.Compare(r.group, o.group), cmp.Compare(r.place, o.place), compareDraws(r.draw, o.draw),
		cmp.Compare(r.name, o.name))
}

// sortedChains lists the chains by rank.
func (tb *memoryTable) sortedChains(f Family) []string {
	ranks := map[string]chainRank{}
	for name := range tb.chains {
		ranks[name] = chainRank{group: 3, name: name}
		prefix, rest, _ := strings.Cut(name, "-")
		if c, ok := parseClass(rest); ok && (prefix+"-" == tokenPrefix || prefix+"-" == hashTablePrefix) {
			ranks[name] = chainRank{group: 1, draw: c.draw, name: prefix}
		}
	}
	everything := program{family: f, loopback: true, ipvs: true, lengths: f.allLengths()}
	for i, c := range everything.chains() {
		ranks[c.name] = chainRank{group: 0, place: i}
	}
	if dispatch := tb.sets[mapDispatch]; dispatch != nil {
		for _, e := range dispatch.elements {
			ranks[e.label] = chainRank{group: 2, place: int(e.classNumber())}
		}
	}
	return slices.SortedFunc(maps.Keys(tb.chains), func(a, b string) int { return ranks[a].compare(ranks[b]) })
}
