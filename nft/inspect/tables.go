package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Tables answers questions about single elements of both tables. It never lists a set that grows with the cluster. It
// does not matter which process wrote the tables, and whether it still runs. Only one goroutine may use it.
type Tables struct {
	kernel kernel.Reader
	close  func() error
	views  map[program.Family]*view
}

// view is one table.
type view struct {
	family  program.Family
	kernel  kernel.Reader
	program program.Program
	order   []program.Chain // of the program
	chains  map[string]program.Chain
	defs    map[string]program.Set
	ranges  map[string][]addrRange // of sets of ranges, as far as they were read
}

// OpenTables opens a socket of its own. The caller closes it.
func OpenTables(o kernel.Options) (*Tables, error) {
	c, err := kernel.Dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	return NewTables(c, c.Close), nil
}

func NewTables(k kernel.Reader, closer func() error) *Tables {
	return &Tables{kernel: k, close: closer, views: map[program.Family]*view{}}
}

// Close closes the socket.
func (t *Tables) Close() error { return t.close() }

// view finds out which program a table has. The error is ErrNoTables if there is no table of the family.
func (t *Tables) view(f program.Family) (*view, error) {
	if v := t.views[f]; v != nil {
		return v, nil
	}
	was, err := t.kernel.SurveyTable(f)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read table %s %s: %w", f, program.TableName, err)
	case !was.Table:
		return nil, kernel.ErrNoTables
	case !was.SameLayout:
		return nil, fmt.Errorf("read table %s %s: %w", f, program.TableName, kernel.ErrUnknownProgram)
	}
	p, err := kernel.Identify(t.kernel, f)
	if err != nil {
		return nil, fmt.Errorf("read table %s %s: %w", f, program.TableName, err)
	}
	p.Lengths = program.AllLengths(f) // a group without a chain has no elements either
	v := &view{
		family: f, kernel: t.kernel, program: p,
		chains: map[string]program.Chain{}, defs: map[string]program.Set{}, ranges: map[string][]addrRange{},
	}
	v.order = p.Chains()
	for _, c := range v.order {
		v.chains[c.Name] = c
	}
	for _, d := range p.Sets() {
		v.defs[d.Name] = d
	}
	t.views[f] = v
	return v, nil
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
func readRanges(k kernel.Reader, f program.Family, set string) ([]addrRange, error) {
	var starts, ends []netip.Addr
	err := k.DumpElements(f, set, func(e kernel.Found) {
		a, _ := netip.AddrFromSlice(e.Key)
		if e.IntervalEnd {
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
func pairRanges(starts, ends []netip.Addr, f program.Family) (out []addrRange) {
	slices.SortFunc(starts, netip.Addr.Compare)
	slices.SortFunc(ends, netip.Addr.Compare)
	ends = slices.DeleteFunc(ends, func(a netip.Addr) bool { return a.IsUnspecified() && a.BitLen() == 8*f.AddrLen() })
	for i, first := range starts {
		r := addrRange{first, program.LastAddr(netip.PrefixFrom(first, 0))}
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

func (r addrRange) String() string { return program.PrefixText(r.first.AsSlice(), r.last.AsSlice()) }

// look looks up a key. It returns the data of the element, and what a reader sees of it.
func (v *view) look(set string, key []byte) (Look, []byte, error) {
	d, ok := v.defs[set]
	if !ok {
		return Look{}, nil, fmt.Errorf("look up an element of @%s: the program has no such set", set)
	}
	if d.Interval {
		return v.lookRange(set, key)
	}
	e, found, err := v.kernel.Lookup(v.family, set, key)
	if err != nil {
		return Look{}, nil, fmt.Errorf("look up an element of @%s: %w", set, err)
	}
	l := Look{Set: set, Key: d.KeyText(key), Found: found}
	l.Element = l.Key
	if found {
		l.Element, l.Label = elementText(&d, e), e.Comment
		l.Expires = e.Expires
		if len(e.Data) == 4 {
			l.Number = binary.NativeEndian.Uint32(e.Data)
		}
	}
	return l, e.Data, nil
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
func elementText(d *program.Set, found kernel.Found) string {
	e := program.Element{KeyLen: uint8(len(found.Key)), DataLen: uint8(len(found.Data)), Label: found.Comment}
	if d.IsMap() && d.Data[0].Name == program.TypeVerdict.Name {
		e.Label, e.DataLen = string(found.Data), 0
	}
	return e.Text(d, slices.Concat(found.Key, found.Data))
}

// has looks up an element whose key is made of numbers and addresses.
func (v *view) has(set string, build func(*program.Builder)) (Look, []byte, error) {
	var b program.Builder
	build(&b)
	return v.look(set, b.Arena)
}

// Related finds what the tables have about the destination of a packet that is no frontend: frontends of other protocols
// at its address and port, node ports of its number, and the address itself.
func (t *Tables) Related(p Packet) (out []Look, err error) {
	v, err := t.view(program.FamilyOf(p.Dst))
	if err != nil {
		return nil, err
	}
	try := func(set string, build func(*program.Builder)) {
		if err == nil {
			var l Look
			if l, _, err = v.has(set, build); l.Found {
				out = append(out, l)
			}
		}
	}
	for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		for _, s := range frontendSetsToRead() {
			at := p.Dst
			if s.nodePort {
				at = netip.Addr{}
			}
			if HasFrontends(s.name) {
				try(s.name, func(b *program.Builder) { b.Frontend(at, p.DstPort, 0, protocol) })
			}
		}
	}
	for _, set := range []string{program.NodePortAddresses.Name(), program.ClusterIPs.Name()} {
		try(set, func(b *program.Builder) { b.Addr(p.Dst) })
	}
	return out, err
}
