package nft

import (
	"fmt"
	"net/netip"
	"slices"
)

// This file has the source ranges: which clients may use the limited frontends of a service port.
//
// nftables has sets whose keys end in a range. But the kernel copies and sorts such a set as a whole for each
// transaction: 36 ms among 10,000 service ports, and 72 ms in IPv6. So a range is an element of a plain set: service
// port, length of the prefix, and first address. The program looks up the client's address, cut to each length that the
// service port may use. A change of ranges costs the same whatever other service ports have.

const (
	limitedChain      = "limited"
	limitedOnlyChain  = "limited-without-pool"
	sourceRangesChain = "source-ranges"
)

// lengthsEach is how many lengths of prefixes make a group. The set source-lengths has the groups that a service port
// uses, and the program skips the others. Larger groups would be fewer, but each one in use would cost more lookups.
const lengthsEach = 8

// lengthGroups are groups of lengths, a bit for each. A group has a chain from when a service port first uses it until the
// engine compares whole tables again. The chains of all groups would have 36 rules in IPv4 and 144 in IPv6, and most nodes
// need one or none.
type lengthGroups uint16

func groupOf(length int) lengthGroups { return 1 << ((length - 1) / lengthsEach) }

// allLengths are the groups that a family can have.
func (f Family) allLengths() lengthGroups { return 1<<(8*f.addrLen()/lengthsEach) - 1 }

// withLength is the number of a service port with the length of a prefix in bits 27 to 20.
func withLength(number uint32, length int) uint32 { return uint32(length)<<poolBits | number<<1 }

// scratchWithLength is the same number for the service port in the scratch number.
func scratchWithLength(length int) field { return maskedWith(groupMask, withLength(0, length)) }

// lastOfGroup is the largest length in the group of a length. It stands for the group.
func lastOfGroup(length int) int { return (length + lengthsEach - 1) / lengthsEach * lengthsEach }

func groupChain(last int) string {
	return fmt.Sprintf("%s-%d-%d", sourceRangesChain, last-lengthsEach+1, last)
}

// lengths are the groups that have a chain.
func (was existing) lengths(f Family) (groups lengthGroups) {
	(program{family: f, lengths: f.allLengths()}).eachGroup(func(last int) {
		if _, there := was.chains[groupChain(last)]; there {
			groups |= groupOf(last)
		}
	})
	return groups
}

// sourceChains drop packets from clients outside of the source ranges. A packet has bit limitedBit in its scratch
// number until its client is found in a range.
func (p program) sourceChains() []chainDef {
	return append(p.groupChains(), p.sourceRanges(),
		chainDef{name: limitedChain, rules: []rule{
			{jump(sourceRangesChain)},
			// The second look is for a client whose range becomes a shorter or longer one at this moment: the first look
			// missed the new range before the change, and the old one after it.
			{scratchHas(limitedBit), jump(sourceRangesChain)},
			{scratchHas(limitedBit), drop()},
		}},
		chainDef{name: limitedOnlyChain, rules: []rule{{jump(limitedChain)}, {clearScratch()}}})
}

// eachGroup calls a function with the largest length of each group that the program has, longest first.
func (p program) eachGroup(do func(last int)) {
	for last := 8 * p.family.addrLen(); last > 0; last -= lengthsEach {
		if p.lengths&groupOf(last) != 0 {
			do(last)
		}
	}
}

func (p program) groupChains() (list []chainDef) {
	p.eachGroup(func(last int) { list = append(list, p.lengthGroup(last)) })
	return list
}

// sourceRanges leads to the groups that the service port uses.
func (p program) sourceRanges() chainDef {
	c := chainDef{name: sourceRangesChain}
	p.eachGroup(func(last int) {
		c.rules = append(c.rules, rule{
			scratchHas(limitedBit), in(setSourceLengths, scratchWithLength(last)), jump(groupChain(last)),
		})
	})
	return c
}

// lengthGroup looks for the client in the ranges of one group of lengths, longest first.
func (p program) lengthGroup(last int) chainDef {
	c := chainDef{name: groupChain(last)}
	for length := last; length > last-lengthsEach; length-- {
		c.rules = append(c.rules, rule{
			in(setAllowedSources, scratchWithLength(length), p.saddrPrefix(length)),
			setScratchTo(masked(^limitedBit)), returnNow(),
		})
	}
	return c
}

// limited reports whether source ranges hold for the frontend. They do not hold for node ports.
func (fe *Frontend) limited() bool { return fe.Firewalled && fe.Addr.IsValid() }

// looksUpSources reports whether the program has to look for clients of a service port in its source ranges.
func (tb *table) looksUpSources(frontends []Frontend, sources []netip.Prefix) bool {
	return !forEveryone(sources, tb.family) && slices.ContainsFunc(frontends, func(fe Frontend) bool { return fe.limited() })
}

// lengthsOf are the groups that the source ranges of a service port need.
func (tb *table) lengthsOf(frontends []Frontend, sources []netip.Prefix) (groups lengthGroups) {
	if !tb.looksUpSources(frontends, sources) {
		return 0
	}
	for _, r := range sources {
		if FamilyOf(r.Addr()) == tb.family {
			groups |= groupOf(r.Bits())
		}
	}
	return groups
}

// recountLengths finds the groups that the service ports need now.
func (tb *table) recountLengths() {
	tb.lengths, tb.lengthsBefore = 0, 0
	for _, p := range tb.ports {
		tb.lengths |= tb.lengthsOf(p.frontends, p.sources)
	}
}

// addLengths writes the chains of groups that are new. They come in a transaction of their own, before the elements that
// need them: a packet in a chain keeps to the rules of the generation in which it entered, but looks elements up as of
// now. It would miss a range whose group has no rule yet, and be dropped.
func (tb *table) addLengths(t *Transaction) {
	p := tb.program()
	if p.lengths &^= tb.lengthsBefore; p.lengths == 0 {
		return
	}
	for _, c := range p.groupChains() {
		t.addChain(tb.family, c)
	}
	p.lengths = tb.lengths
	t.operation(operation{kind: opFlushRules, family: tb.family, name: sourceRangesChain})
	for _, r := range p.sourceRanges().rules {
		t.operation(operation{kind: opAddRule, family: tb.family, name: sourceRangesChain, rule: r})
	}
}

// forEveryone reports whether one of the ranges covers the whole family. Then there is nothing to look up.
func forEveryone(sources []netip.Prefix, f Family) bool {
	return slices.ContainsFunc(sources, func(r netip.Prefix) bool { return r.Bits() == 0 && FamilyOf(r.Addr()) == f })
}

// appendSources adds the elements of a service port's source ranges.
func (tb *table) appendSources(t *Transaction, out []placed, p *port, sources []netip.Prefix) []placed {
	name := Label(p.name)
	for _, r := range withoutNested(sources, tb.family) {
		group, number := withLength(p.number, lastOfGroup(r.Bits())), withLength(p.number, r.Bits())
		label := shorten(r.String()+" "+p.name, maxComment)
		out = append(out,
			placed{idSourceLengths, t.element(name, func(b *builder) { b.word(group) }, nil)},
			placed{idAllowedSources, t.element(label, func(b *builder) { b.word(number); b.addr(r.Addr()) }, nil)})
	}
	return out
}
