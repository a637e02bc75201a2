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

// withLength is the number of a service port with the length of a prefix in bits 27 to 20.
func withLength(number uint32, length int) uint32 { return uint32(length)<<poolBits | number<<1 }

// scratchWithLength is the same number for the service port in the scratch number.
func scratchWithLength(length int) field { return maskedWith(groupMask, withLength(0, length)) }

// lastOfGroup is the largest length in the group of a length. It stands for the group.
func lastOfGroup(length int) int { return (length + lengthsEach - 1) / lengthsEach * lengthsEach }

func groupChain(last int) string {
	return fmt.Sprintf("%s-%d-%d", sourceRangesChain, last-lengthsEach+1, last)
}

// sourceChains drop packets from clients outside of the source ranges. A packet has bit limitedBit in its scratch
// number until its client is found in a range.
func (p program) sourceChains() []chainDef {
	var groups []chainDef
	var each []rule
	for last := 8 * p.family.addrLen(); last > 0; last -= lengthsEach {
		groups = append(groups, p.lengthGroup(last))
		each = append(each, rule{
			scratchHas(limitedBit), in(setSourceLengths, scratchWithLength(last)), jump(groupChain(last)),
		})
	}
	return append(groups,
		chainDef{name: sourceRangesChain, rules: each},
		chainDef{name: limitedChain, rules: []rule{
			{jump(sourceRangesChain)},
			// The second look is for a client whose range becomes a shorter or longer one at this moment: the first look
			// missed the new range before the change, and the old one after it.
			{scratchHas(limitedBit), jump(sourceRangesChain)},
			{scratchHas(limitedBit), drop()},
		}},
		chainDef{name: limitedOnlyChain, rules: []rule{{jump(limitedChain)}, {clearScratch()}}})
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

// forEveryone reports whether one of the ranges covers the whole family. Then there is nothing to look up.
func forEveryone(sources []netip.Prefix, f Family) bool {
	return slices.ContainsFunc(sources, func(r netip.Prefix) bool { return r.Bits() == 0 && FamilyOf(r.Addr()) == f })
}

// appendSources adds the elements of a service port's source ranges.
func (tb *table) appendSources(t *Transaction, out []placed, p *port, sources []netip.Prefix) []placed {
	name := truncateComment(p.name)
	for _, r := range withoutNested(sources, tb.family) {
		group, number := withLength(p.number, lastOfGroup(r.Bits())), withLength(p.number, r.Bits())
		label := truncateComment(r.String() + " " + p.name)
		out = append(out,
			placed{idSourceLengths, t.element(name, func(b *builder) { b.word(group) }, nil)},
			placed{idAllowedSources, t.element(label, func(b *builder) { b.word(number); b.addr(r.Addr()) }, nil)})
	}
	return out
}
