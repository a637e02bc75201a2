package mirror

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// settings own what belongs to no service port.
type settings struct {
	wanted        contents.Globals // the rules are always written for these
	written       contents.Globals // those whose elements the latest transaction has
	changed       bool
	affinityShare uint32 // as in Options
}

// set notes the wanted globals. Each transaction writes the difference once, so several changes before one Apply do no
// harm.
func (s *settings) set(g contents.Globals) { s.wanted, s.changed = g, true }

// rewrite has write add all elements, as for an empty table.
func (s *settings) rewrite() { s.written, s.changed = contents.Globals{}, true }

// program is the program under the wanted globals.
func (s *settings) program(f program.Family, lengths program.LengthGroups) program.Program {
	p := s.wanted.Program(f)
	p.AffinityShare, p.Lengths = s.affinityShare, lengths
	return p
}

// write updates the sets that belong to no service port. It does not look at the globals that rules depend on: if those
// change, the engine writes the whole table.
func (s *settings) write(w program.Writer) {
	if !s.changed {
		return
	}
	old, want := s.written, s.wanted
	s.written, s.changed = want, false
	updateRanges(w, program.ServiceCIDRs, old.ServiceCIDRs, want.ServiceCIDRs)
	updateRanges(w, program.PodCIDRs, old.PodCIDRs, want.PodCIDRs)
	w.Diff(nodePortAddresses(w, old), nodePortAddresses(w, want))
}

// list adds the elements that the kernel has.
func (s *settings) list(w program.Writer) {
	kernel := settings{wanted: s.written, changed: true}
	kernel.write(w)
}

func nodePortAddresses(w program.Writer, g contents.Globals) []program.Placed {
	var out []program.Placed
	for _, a := range g.NodePortAddresses {
		if program.FamilyOf(a) == w.Family {
			out = append(out, program.Placed{Set: program.NodePortAddresses, Element: w.Element("", func(b *program.Builder) { b.Addr(a) }, nil)})
		}
	}
	return w.Sorted(out)
}

// updateRanges replaces the prefixes in a set whose key is one range. In such a set each range is two elements.
func updateRanges(w program.Writer, id program.SetID, old, want []netip.Prefix) {
	before, after := program.WithoutNested(old, w.Family), program.WithoutNested(want, w.Family)
	for _, p := range before {
		if !slices.Contains(after, p) {
			rangeElements(w.Transaction, p, func(e program.Element) { w.Remove(id, e) })
		}
	}
	for _, p := range after {
		if !slices.Contains(before, p) {
			rangeElements(w.Transaction, p, func(e program.Element) { w.Insert(id, e) })
		}
	}
}

// rangeElements makes the two elements of a range: its first address, and the first address after it. A range that
// includes the last address of the family has only the first one.
func rangeElements(t *program.Transaction, p netip.Prefix, put func(program.Element)) {
	put(t.Element("", func(b *program.Builder) { b.Addr(p.Addr()) }, nil))
	behind := program.LastAddr(p).Next()
	if !behind.IsValid() {
		return
	}
	end := t.Element("", func(b *program.Builder) { b.Addr(behind) }, nil)
	end.IntervalEnd = true
	put(end)
}
