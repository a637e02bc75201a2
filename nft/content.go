package nft

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Line is one element, or one chain, as Content compares it. Numbers that are local to a process are replaced: a pool
// has the name of its service port in angle brackets.
type Line struct {
	Family Family
	Set    string // "": it is about chains
	Text   string
}

// String is the line in nft syntax, apart from the names in angle brackets.
func (l Line) String() string {
	where := l.Family.String() + " " + TableName
	if l.Set == "" {
		return where + " " + l.Text
	}
	return where + " " + l.Set + " { " + l.Text + " }"
}

func (l Line) compare(o Line) int {
	return cmp.Or(cmp.Compare(l.Family, o.Family), cmp.Compare(l.Set, o.Set), cmp.Compare(l.Text, o.Text))
}

// contentKernel is what Content needs of nf_tables.
type contentKernel interface {
	readable
	survey(f Family) (existing, error)
}

// Content reads both tables, sorted. It leaves out what differs between processes that serve the same: the numbers of
// pools, classes and hash tables, the order of slots, tokens, counters, and the stamp. It leaves out what packets write:
// the entries of clients, and endpoints that do not answer. Torn means that the tables changed during each attempt to
// read them.
func Content(o Options) (lines []Line, torn bool, err error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for range listTries {
		before, err := c.generation()
		if err != nil {
			return nil, false, err
		}
		if lines, err = content(c); err != nil {
			return nil, false, err
		}
		after, err := c.generation()
		if err != nil || before == after {
			return lines, false, err
		}
	}
	return lines, true, nil
}

// Content reads the tables in memory.
func (m *Memory) Content() ([]Line, error) { return content(m.kernel) }

func content(k contentKernel) (lines []Line, err error) {
	for _, f := range Families() {
		was, err := k.survey(f)
		if err != nil {
			return nil, fmt.Errorf("read table %s %s: %w", f, TableName, err)
		}
		if !was.table {
			continue
		}
		r := &contentReader{lister: newLister(k, f, was, nil), names: map[uint32]string{}}
		if err := r.read(); err != nil {
			return nil, fmt.Errorf("read table %s %s: %w", f, TableName, err)
		}
		lines = append(lines, r.lines...)
	}
	slices.SortFunc(lines, Line.compare)
	return lines, nil
}

// contentReader reads one table.
type contentReader struct {
	*lister
	names map[uint32]string // of pools
	lines []Line
}

func (r *contentReader) add(set, text string) {
	r.lines = append(r.lines, Line{r.family, set, text})
}

func (r *contentReader) read() error {
	for _, step := range []func() error{r.readClasses, r.readPoolNames, r.readProgram, r.readSets, r.readEndpoints} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// readPoolNames reads which service port has which pool. A pool without a name cannot exist.
func (r *contentReader) readPoolNames() error {
	return r.dump(mapPools, func(e foundElement) {
		if len(e.key) == 4 && len(e.data) == 4 {
			number := binary.NativeEndian.Uint32(e.key)
			r.names[number] = e.comment
			r.classOf[number] = binary.NativeEndian.Uint32(e.data) >> poolBits
		}
	})
}

// readProgram reads the fingerprint of the program, and how many rules its chains have, with a digest of them. The
// chains of classes and of groups of prefix lengths come and go, so they do not count. Other base chains do.
func (r *contentReader) readProgram() error {
	if r.was.asleep() {
		r.add("", "flags dormant # the table sleeps: no rule of it sees packets")
	}
	chains := (program{family: r.family, loopback: true, ipvs: true}).chains()
	for name, c := range r.was.chains {
		ours := slices.ContainsFunc(chains, func(c chainDef) bool { return c.name == name })
		if !ours && c == (chainShape{}) || name == sourceRangesChain && r.leadsToItsGroups() {
			continue
		}
		policy, rules := "", r.was.rules[name]
		if r.was.dropping[name] {
			policy = " { policy drop; }"
		}
		r.add("", fmt.Sprintf("chain %s%s # %d rules, digest %016x", name, policy, rules.count, rules.digest))
	}
	return r.dump(setGeneration, func(e foundElement) { r.add(setGeneration, e.comment) })
}

// leadsToItsGroups reports whether the rules that look for a client in the source ranges are those for the groups of prefix
// lengths that have a chain.
func (r *contentReader) leadsToItsGroups() bool {
	p := program{family: r.family, lengths: r.was.lengths(r.family)}
	return r.was.rules[sourceRangesChain] == rulesOf(r.family, p.sourceRanges().rules)
}

// localSets are sets whose elements have numbers of a process. Their meaning is in the lines of pools and frontends.
func localSets() []string {
	return []string{
		setGeneration, mapDispatch, mapPools, mapEndpoints, mapStickySlots, mapStickyEndpoints, mapHashTables,
		mapHashSlots, mapTargetPorts, setSourceLengths, setIPVSAddresses,
	}
}

func (r *contentReader) readSets() error {
	defs := (program{family: r.family}).sets()
	for i := range defs {
		d := &defs[i]
		if d.dynamic || slices.Contains(localSets(), d.name) {
			continue // packets write into dynamic sets
		}
		if d.interval {
			if err := r.readRanges(d.name); err != nil {
				return err
			}
			continue
		}
		if err := r.dump(d.name, func(e foundElement) { r.add(d.name, r.text(d, e)) }); err != nil {
			return err
		}
	}
	return nil
}

// text is an element without numbers of pools.
func (r *contentReader) text(d *setDef, e foundElement) string {
	if d.name == mapFirewalled {
		e.data = nil // a number of the service port, which the comment names
	}
	if d.name == setAllowedSources {
		return `comment "` + e.comment + `"`
	}
	data := e.data
	e.data = nil
	text := elementText(d, e)
	if len(data) == 4 {
		text += " : " + r.choice(binary.NativeEndian.Uint32(data))
	}
	return text
}

// choice is the data of a frontend: a pool, and what the client's address decides.
func (r *contentReader) choice(number uint32) string {
	name := r.names[number&poolMask]
	if name == "" { // the source decides, and the cluster pool is empty
		name = strings.TrimSuffix(r.names[number&poolMask|localBit], " local")
	}
	words := []string{"<" + name + ">"}
	if number&bySourceBit != 0 {
		words = append(words, "by source")
	}
	if number&limitedBit != 0 {
		words = append(words, "with source ranges")
	}
	return strings.Join(words, " ")
}

func (r *contentReader) readRanges(set string) error {
	list, err := readRanges(r.kernel, r.family, set)
	for _, one := range list {
		r.add(set, one.String())
	}
	return err
}

// readEndpoints reads the class and the endpoints of each pool, whichever maps have its slots.
func (r *contentReader) readEndpoints() error {
	for number, name := range r.names {
		c := r.classes[r.classOf[number]]
		r.add(mapPools, fmt.Sprintf("<%s> : goto %s", name, c.chain()))
		list, err := r.pool(&listed{}, number)
		if err != nil {
			return err
		}
		for _, e := range list {
			text := fmt.Sprintf("<%s> : %s . %d", name, e.Addr.Addr(), e.Addr.Port())
			if e.Slots > 1 && !c.hashed() {
				text += fmt.Sprintf(" # %d slots", e.Slots)
			}
			r.add(mapEndpoints, text)
		}
	}
	return nil
}

// Difference lists the lines that only one of two sorted lists has.
func Difference(have, want []Line) (extra, missing []Line) {
	for len(have) > 0 || len(want) > 0 {
		order := -1
		switch {
		case len(have) == 0:
			order = 1
		case len(want) > 0:
			order = have[0].compare(want[0])
		}
		switch {
		case order < 0:
			extra, have = append(extra, have[0]), have[1:]
		case order > 0:
			missing, want = append(missing, want[0]), want[1:]
		default:
			have, want = have[1:], want[1:]
		}
	}
	return extra, missing
}
