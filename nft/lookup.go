package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// Tables answers questions about single elements of both tables. It never lists a set that grows with the cluster. It
// does not matter which process wrote the tables, and whether it still runs. Only one goroutine may use it.
type Tables struct {
	kernel walkable
	close  func() error
	views  map[Family]*view
}

// walkable is what Tables needs of nf_tables: a netlink socket (conn), or a model in memory (memoryKernel).
type walkable interface {
	readable
	surveyTable(f Family) (existing, error)
	surveyChains(f Family) (existing, error)
}

// view is one table.
type view struct {
	family  Family
	kernel  walkable
	program program
	order   []chainDef // of the program
	chains  map[string]chainDef
	defs    map[string]setDef
	ranges  map[string][]addrRange // of sets of ranges, as far as they were read
}

// OpenTables opens a socket of its own. The caller closes it.
func OpenTables(o Options) (*Tables, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	return newTables(c, c.close), nil
}

// Tables reads the kernel in memory.
func (m *Memory) Tables() *Tables { return newTables(m.kernel, m.kernel.close) }

func newTables(k walkable, closer func() error) *Tables {
	return &Tables{kernel: k, close: closer, views: map[Family]*view{}}
}

// Close closes the socket.
func (t *Tables) Close() error { return t.close() }

// ErrUnknownProgram means that a version of Verdict with other rules wrote the tables.
var ErrUnknownProgram = errors.New("another version of Verdict wrote this table, and its rules differ from those of " +
	"this version; use the version that wrote it")

// view finds out which program a table has. The error is ErrNoTables if there is no table of the family.
func (t *Tables) view(f Family) (*view, error) {
	if v := t.views[f]; v != nil {
		return v, nil
	}
	was, err := t.kernel.surveyTable(f)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read table %s %s: %w", f, TableName, err)
	case !was.table:
		return nil, ErrNoTables
	case !was.sameLayout:
		return nil, fmt.Errorf("read table %s %s: %w", f, TableName, ErrUnknownProgram)
	}
	p, err := identify(t.kernel, f)
	if err != nil {
		return nil, fmt.Errorf("read table %s %s: %w", f, TableName, err)
	}
	p.lengths = f.allLengths() // a group without a chain has no elements either
	v := &view{
		family: f, kernel: t.kernel, program: p,
		chains: map[string]chainDef{}, defs: map[string]setDef{}, ranges: map[string][]addrRange{},
	}
	v.order = p.chains()
	for _, c := range v.order {
		v.chains[c.name] = c
	}
	for _, d := range p.sets() {
		v.defs[d.name] = d
	}
	t.views[f] = v
	return v, nil
}

// identify finds the program whose fingerprint is in the stamp of the table.
func identify(k readable, f Family) (program, error) {
	fingerprint := ""
	err := k.dumpElements(f, setGeneration, func(e foundElement) { fingerprint = e.comment })
	if err != nil {
		return program{}, err
	}
	words := strings.SplitN(fingerprint, " ", 3)
	p := parseProgram(f, words[len(words)-1])
	if defs := p.sets(); p.fingerprint(defs[:]) == fingerprint {
		return p, nil
	}
	return program{}, fmt.Errorf("%w (its stamp is %q)", ErrUnknownProgram, fingerprint)
}

// expression is one expression of a rule, as the kernel lists it.
type expression struct {
	name string
	data []byte
}

func decodeExpression(a nlmsg.Attributes) (e expression) {
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_EXPR_NAME:
			e.name = a.Text()
		case unix.NFTA_EXPR_DATA:
			e.data = a.Value
		}
	}
	return e
}

// attributes are those in an attribute of the expression.
func (e expression) attributes(kind uint16) nlmsg.Attributes {
	for a := nlmsg.NewAttributes(e.data); a.Next(); {
		if a.Kind == kind {
			return a.Nested()
		}
	}
	return nlmsg.Attributes{}
}

// number is an attribute of the expression that is a number; 0: it has none.
func (e expression) number(kind uint16) uint32 {
	for a := nlmsg.NewAttributes(e.data); a.Next(); {
		if a.Kind == kind {
			return a.Uint32()
		}
	}
	return 0
}

// addrRange is a range of addresses.
type addrRange struct{ first, last netip.Addr }

// rangesOf reads a set of ranges once.
func (v *view) rangesOf(set string) ([]addrRange, error) {
	if list, ok := v.ranges[set]; ok {
		return list, nil
	}
	list, err := readRanges(v.kernel, v.family, set)
	if err == nil {
		v.ranges[set] = list
	}
	return list, err
}

// readRanges reads a set of ranges. Such sets are small: they belong to the globals.
func readRanges(k readable, f Family, set string) ([]addrRange, error) {
	var starts, ends []netip.Addr
	err := k.dumpElements(f, set, func(e foundElement) {
		a, _ := netip.AddrFromSlice(e.key)
		if e.intervalEnd {
			ends = append(ends, a)
		} else {
			starts = append(starts, a)
		}
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	return pairRanges(starts, ends, f), nil
}

// pairRanges joins the two elements of each range. The last range may have no end.
func pairRanges(starts, ends []netip.Addr, f Family) (out []addrRange) {
	slices.SortFunc(starts, netip.Addr.Compare)
	slices.SortFunc(ends, netip.Addr.Compare)
	ends = slices.DeleteFunc(ends, func(a netip.Addr) bool { return a.IsUnspecified() && a.BitLen() == 8*f.addrLen() })
	for i, first := range starts {
		r := addrRange{first, lastAddr(netip.PrefixFrom(first, 0))}
		if i < len(ends) {
			r.last = ends[i].Prev()
		}
		out = append(out, r)
	}
	return out
}

func (r addrRange) contains(a netip.Addr) bool {
	return r.first.Compare(a) <= 0 && a.Compare(r.last) <= 0
}

func (r addrRange) String() string { return prefixText(r.first.AsSlice(), r.last.AsSlice()) }

// look looks up a key. It returns the data of the element, and what a reader sees of it.
func (v *view) look(set string, key []byte) (Look, []byte, error) {
	d, ok := v.defs[set]
	if !ok {
		return Look{}, nil, fmt.Errorf("look up an element of @%s: the program has no such set", set)
	}
	if d.interval {
		return v.lookRange(set, key)
	}
	e, found, err := v.kernel.lookup(v.family, set, key)
	if err != nil {
		return Look{}, nil, fmt.Errorf("look up an element of @%s: %w", set, err)
	}
	l := Look{Set: set, Key: printConcat(d.key, key), Found: found}
	l.Element = l.Key
	if found {
		l.Element, l.Label = elementText(&d, e), e.comment
		l.Packets, l.Expires = e.packets, e.expires
		if len(e.data) == 4 {
			l.Number = binary.NativeEndian.Uint32(e.data)
		}
	}
	return l, e.data, nil
}

func (v *view) lookRange(set string, key []byte) (Look, []byte, error) {
	a, _ := netip.AddrFromSlice(key)
	l := Look{Set: set, Key: a.String(), Element: a.String()}
	ranges, err := v.rangesOf(set)
	if err != nil {
		return l, nil, fmt.Errorf("read the ranges of @%s: %w", set, err)
	}
	for _, r := range ranges {
		if r.contains(a) {
			l.Found, l.Element = true, r.String()
		}
	}
	return l, nil, nil
}

// elementText is the element as nft lists it, without the values of counters and timeouts.
func elementText(d *setDef, found foundElement) string {
	e := element{key: uint8(len(found.key)), data: uint8(len(found.data)), label: found.comment}
	if d.isMap() && d.data[0].name == typeVerdict.name {
		e.label, e.data = string(found.data), 0
	}
	return e.text(d, slices.Concat(found.key, found.data))
}

// has looks up an element whose key is made of numbers and addresses.
func (v *view) has(set string, build func(*builder)) (Look, []byte, error) {
	var b builder
	build(&b)
	return v.look(set, b.arena)
}

// Related finds what the tables have about the destination of a packet that is no frontend: frontends of other protocols
// at its address and port, node ports of its number, and the address itself.
func (t *Tables) Related(p Packet) (out []Look, err error) {
	v, err := t.view(FamilyOf(p.Dst))
	if err != nil {
		return nil, err
	}
	try := func(set string, build func(*builder)) {
		if err == nil {
			var l Look
			if l, _, err = v.has(set, build); l.Found {
				out = append(out, l)
			}
		}
	}
	for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		for _, set := range []string{mapServices, setNoEndpoints, setNoLocalEndpoints, setIPVSFrontends} {
			try(set, func(b *builder) { b.addr(p.Dst); b.proto(protocol); b.port(p.DstPort) })
		}
		for _, set := range []string{mapNodePorts, setNoEndpointsNodePorts, setNoLocalEndpointsNodePorts, setIPVSNodePorts} {
			try(set, func(b *builder) { b.proto(protocol); b.port(p.DstPort) })
		}
	}
	for _, set := range []string{setNodePortAddresses, setClusterIPs} {
		try(set, func(b *builder) { b.addr(p.Dst) })
	}
	return out, err
}
