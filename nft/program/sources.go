package program

import (
	"fmt"

	"github.com/verdict-proxy/verdict/nft/rule"
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
	SourceRangesChain = "source-ranges"
)

// WithLength is the number of a service port with the length of a prefix in bits 27 to 20.
func WithLength(number uint32, length int) uint32 { return uint32(length)<<PoolBits | number<<1 }

// scratchWithLength is the same number for the service port in the scratch number.
func scratchWithLength(length int) rule.Field {
	return rule.MaskedWith(GroupMask, WithLength(0, length))
}

// LastOfGroup is the largest length in the group of a length. It stands for the group.
func LastOfGroup(length int) int { return (length + LengthsEach - 1) / LengthsEach * LengthsEach }

func GroupChain(last int) string {
	return fmt.Sprintf("%s-%d-%d", SourceRangesChain, last-LengthsEach+1, last)
}

// sourceChains drop packets from clients outside of the source ranges. A packet has bit LimitedBit in its scratch
// number until its client is found in a range.
func (p Program) sourceChains() []Chain {
	return append(p.GroupChains(), p.SourceRanges(),
		Chain{Name: limitedChain, Rules: []rule.Rule{
			{rule.Jump(SourceRangesChain)},
			// The second look is for a client whose range becomes a shorter or longer one at this moment: the first look
			// missed the new range before the change, and the old one after it.
			{rule.ScratchHas(LimitedBit), rule.Jump(SourceRangesChain)},
			{rule.ScratchHas(LimitedBit), rule.Drop()},
		}},
		Chain{Name: limitedOnlyChain, Rules: []rule.Rule{{rule.Jump(limitedChain)}, {rule.ClearScratch()}}})
}

func (p Program) GroupChains() (list []Chain) {
	p.Lengths.Each(p.Family, func(last int) { list = append(list, lengthGroup(p.Family, last)) })
	return list
}

// SourceRanges leads to the groups that the service port uses.
func (p Program) SourceRanges() Chain {
	c := Chain{Name: SourceRangesChain}
	p.Lengths.Each(p.Family, func(last int) {
		c.Rules = append(c.Rules, rule.Rule{
			rule.ScratchHas(LimitedBit), rule.In(SourceLengths, scratchWithLength(last)), rule.Jump(GroupChain(last)),
		})
	})
	return c
}

// lengthGroup looks for the client in the ranges of one group of lengths, longest first.
func lengthGroup(f Family, last int) Chain {
	c := Chain{Name: GroupChain(last)}
	for length := last; length > last-LengthsEach; length-- {
		c.Rules = append(c.Rules, rule.Rule{
			rule.In(AllowedSources, scratchWithLength(length), rule.SaddrPrefix(f, length)),
			rule.SetScratchTo(rule.Masked(^LimitedBit)), rule.ReturnNow(),
		})
	}
	return c
}
