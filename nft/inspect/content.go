package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// Line is one element, or one chain, as Content compares it. Numbers that are local to a process are replaced: a pool
// has the name of its service port in angle brackets.
type Line struct {
	Family program.Family
	Set    string // "": it is about chains
	Text   string
}

// String is the line in nft syntax, apart from the names in angle brackets.
func (l Line) String() string {
	where := l.Family.String() + " " + program.TableName
	if l.Set == "" {
		return where + " " + l.Text
	}
	return where + " " + l.Set + " { " + l.Text + " }"
}

// NoticesRefusals reports whether the line is about the chain that looks for endpoints that refuse.
func (l Line) NoticesRefusals() bool {
	return l.Set == "" && strings.HasPrefix(l.Text, "chain "+program.RefusedChain+" ")
}

func (l Line) compare(o Line) int {
	return cmp.Or(cmp.Compare(l.Family, o.Family), cmp.Compare(l.Set, o.Set), cmp.Compare(l.Text, o.Text))
}

// Content reads both tables, sorted. It leaves out what differs between processes that serve the same: the numbers of
// pools, classes and hash tables, the order of slots, tokens, counters, and the stamp. It leaves out what packets write:
// the entries of clients, and endpoints that do not answer. Torn means that the tables changed during each attempt to
// read them.
func Content(o kernel.Options) (lines []Line, torn bool, err error) {
	torn, err = dialed(o, func(c *kernel.Conn) (bool, error) {
		return whole(c, func() (err error) {
			lines, err = ContentFrom(c)
			return err
		})
	})
	return lines, torn, err
}

// ContentFrom reads both tables once.
func ContentFrom(k kernel.Reader) (lines []Line, err error) {
	families := program.Families()
	err = eachTable(k, families[:], func(t *table, _ kernel.Existing) error {
		was, err := k.Survey(t.family)
		if err != nil || !was.Table {
			return err
		}
		r := &contentReader{table: t, was: was}
		err = r.read()
		lines = append(lines, r.lines...)
		return err
	})
	if errors.Is(err, kernel.ErrNoTables) {
		err = nil
	}
	slices.SortFunc(lines, Line.compare)
	return lines, err
}

// contentReader reads one table.
type contentReader struct {
	*table
	was   kernel.Existing
	lines []Line
}

func (r *contentReader) add(set, text string) {
	r.lines = append(r.lines, Line{r.family, set, text})
}

func (r *contentReader) read() error {
	return errors.Join(r.load(program.Pools, program.Dispatch), r.readProgram(), r.readSets(), r.readEndpoints())
}

// readProgram reads the fingerprint of the program, and how many rules its chains have, with a digest of them. The
// chains of classes and of groups of prefix lengths come and go, so they do not count. Other base chains do.
func (r *contentReader) readProgram() error {
	if r.was.Asleep() {
		r.add("", "flags dormant # the table sleeps: no rule of it sees packets")
	}
	chains := (program.Program{Family: r.family, Loopback: true, IPVS: true, Unanswered: true, Refusing: true, Fleet: true}).Chains()
	for name, c := range r.was.Chains {
		ours := slices.ContainsFunc(chains, func(c program.Chain) bool { return c.Name == name })
		if !ours && c == (program.ChainShape{}) || name == program.SourceRangesChain && r.leadsToItsGroups() {
			continue
		}
		policy, rules := "", r.was.Rules[name]
		if r.was.Dropping[name] {
			policy = " { policy drop; }"
		}
		r.add("", fmt.Sprintf("chain %s%s # %d rules, digest %016x", name, policy, rules.Count, rules.Digest))
	}
	return r.elements(program.Generation, nil, func(e kernel.Found) { r.add(program.Generation.Name(), e.Comment) })
}

// leadsToItsGroups reports whether the rules that look for a client in the source ranges are those for the groups of prefix
// lengths that have a chain.
func (r *contentReader) leadsToItsGroups() bool {
	p := program.Program{Family: r.family, Lengths: r.was.Lengths(r.family)}
	return r.was.Rules[program.SourceRangesChain] == rule.RulesOf(r.family, p.SourceRanges().Rules)
}

// isLocal reports whether the elements of a set have numbers of a process. Their meaning is in the lines of pools and frontends.
func (r *contentReader) isLocal(set program.SetID) bool {
	switch set {
	case program.Generation, program.IPVSAddresses:
		return true
	case program.AllowedSources: // its comments have no number
		return false
	}
	return r.defs[set].Key[0].Name == program.TypeClassID.Name
}

func (r *contentReader) readSets() (err error) {
	for set := range program.SetCount {
		switch d := &r.defs[set]; {
		case d.Dynamic, r.isLocal(set): // packets write into dynamic sets
		case d.Interval:
			var list []addrRange
			list, err = r.readRanges(set)
			for _, one := range list {
				r.add(d.Name, one.String())
			}
		default:
			err = r.elements(set, nil, func(e kernel.Found) { r.add(d.Name, r.text(set, e)) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// text is an element without numbers of service ports and pools.
func (r *contentReader) text(set program.SetID, e kernel.Found) string {
	d := &r.defs[set]
	if set == program.AllowedSources {
		return `comment "` + e.Comment + `"`
	}
	number, ok := numberOf(e.Data)
	if d.IsMap() && d.Data[0].Name == program.TypeClassID.Name {
		e.Data = nil
	}
	text := elementText(d, e)
	if ok && set.Says() == program.Served {
		text += " : " + r.choice(number)
	}
	return text
}

// choice is the data of a frontend: a pool, and what the client's address decides.
func (r *contentReader) choice(number uint32) string {
	name := r.nameOf(number & program.PoolMask)
	if name == "" { // the source decides, and the cluster pool is empty
		name = strings.TrimSuffix(r.nameOf(number&program.PoolMask|program.LocalBit), program.LocalSuffix)
	}
	words := []string{"<" + name + ">"}
	if number&program.BySourceBit != 0 {
		words = append(words, "by source")
	}
	if number&program.LimitedBit != 0 {
		words = append(words, "with source ranges")
	}
	return strings.Join(words, " ")
}

func (r *contentReader) nameOf(pool uint32) string {
	return r.loaded[program.Pools][string(words(pool))].Comment
}

// readEndpoints reads the class and the endpoints of each pool, whichever maps have its slots.
func (r *contentReader) readEndpoints() error {
	for key := range r.loaded[program.Pools] {
		number, _ := numberOf([]byte(key))
		c, name, err := r.class(number)
		if err != nil {
			return err
		}
		r.add(program.Pools.Name(), fmt.Sprintf("<%s> : goto %s", name, c.ChainName()))
		if c.Empty() {
			continue
		}
		list, err := r.pool(number, c)
		if err != nil {
			return err
		}
		for _, e := range list {
			text := fmt.Sprintf("<%s> : %s", name, e.Addr.Addr())
			if port := e.Addr.Port(); port != 0 {
				text += fmt.Sprintf(" . %d", port)
			}
			if e.Slots > 1 && !c.Hashed() {
				text += fmt.Sprintf(" # %d slots", e.Slots)
			}
			r.add(program.Endpoints.Name(), text)
		}
	}
	return nil
}

// Difference prints the lines that only one of two lists has, set by set: those of the first one begin with "-", those of the
// second one with "+".
func Difference(have, want []Line) (out []string) {
	surplus := map[Line]int{} // how many more the first one has
	for _, l := range have {
		surplus[l]++
	}
	for _, l := range want {
		surplus[l]--
	}
	maps.DeleteFunc(surplus, func(_ Line, n int) bool { return n == 0 })
	mark := func(l Line) string {
		if surplus[l] < 0 {
			return "+"
		}
		return "-"
	}
	differ := slices.SortedFunc(maps.Keys(surplus), func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Set, b.Set), -cmp.Compare(mark(a), mark(b)), a.compare(b))
	})
	for _, l := range differ {
		n := max(surplus[l], -surplus[l])
		out = append(out, slices.Repeat([]string{mark(l) + l.String()}, n)...)
	}
	return out
}
