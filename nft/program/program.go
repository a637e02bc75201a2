package program

import (
	"fmt"
	"hash/fnv"
	"io"
	"net/netip"
	"strings"

	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// TableName is the name of both tables, "ip verdict" and "ip6 verdict".
const TableName = "verdict"

// Family is an address family, which is also the family of one table.
type Family = serviceport.Family

// The two families.
const (
	IPv4 = serviceport.IPv4
	IPv6 = serviceport.IPv6
)

// Families lists both families, in the order in which tables are written.
func Families() [2]Family { return [2]Family{IPv4, IPv6} }

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family { return serviceport.FamilyOf(a) }

// Program is what one family's table consists of: its methods make the sets (sets.go), the chains and their rules
// (chains.go). Besides the family, the rules of the fixed chains depend on the globals; everything else is the
// same for all of them.
type Program struct {
	Family Family

	MasqueradeAll bool
	PodInterface  string // name, or prefix ending in "*"
	PodCIDRs      bool
	Loopback      bool   // node ports answer on a loopback address
	IPVS          bool   // virtual servers of IPVS serve some frontends
	Unanswered    bool   // endpoints that do not answer are noticed
	Refusing      bool   // endpoints that refuse connections are noticed
	Fleet         bool   // connections of other balancers go on here
	DropInvalid   bool   // what connection tracking calls invalid from pods is dropped
	BridgesStay   bool   // connections by a bridge do not take the fast path
	FastPath      uint32 // connections of some Services take the fast path after so many packets; 0: none do
	Circles       bool   // the kernel cannot tell which packets go back to where they came from, so these circle

	AffinityShare uint32 // client numbers are below it; 0: DefaultAffinityShare
	Lengths       LengthGroups
}

// flags are the options that are on or off, by the words that stand for them in the fingerprint.
func (p *Program) flags() []programFlag {
	return []programFlag{
		{"masquerade-all", &p.MasqueradeAll}, {"pod-cidrs", &p.PodCIDRs}, {"loopback", &p.Loopback}, {"ipvs", &p.IPVS},
		{"unanswered", &p.Unanswered}, {"refusing", &p.Refusing}, {"fleet", &p.Fleet}, {"drop-invalid", &p.DropInvalid},
		{"circles", &p.Circles}, {"bridges-stay", &p.BridgesStay},
	}
}

type programFlag struct {
	word string
	on   *bool
}

// Parse is the program with the options of a fingerprint. Words that it does not know are those of another version.
func Parse(f Family, options string) Program {
	p := Program{Family: f}
	for word := range strings.SplitSeq(options, ", ") {
		for _, f := range p.flags() {
			*f.on = *f.on || f.word == word
		}
		if name, ok := strings.CutPrefix(word, "interface "); ok {
			p.PodInterface = name
		}
		_, _ = fmt.Sscanf(word, "share %d", &p.AffinityShare) // 0 for other words
		_, _ = fmt.Sscanf(word, "fast-path %d", &p.FastPath)
	}
	return p
}

// LengthsEach is how many lengths of prefixes make a group. The set source-lengths has the groups that a service port
// uses, and the program skips the others. Larger groups would be fewer, but each one in use would cost more lookups.
const LengthsEach = 8

// LengthGroups are groups of lengths, a bit for each. A group has a chain from when a service port first uses it until the
// engine compares whole tables again. The chains of all groups would have 36 rules in IPv4 and 144 in IPv6, and most nodes
// need one or none.
type LengthGroups uint16

func GroupOf(length int) LengthGroups { return 1 << ((length - 1) / LengthsEach) }

// AllLengths are the groups that a family can have.
func AllLengths(f Family) LengthGroups { return 1<<(8*f.AddrLen()/LengthsEach) - 1 }

// Each calls a function with the largest length of each group, longest first.
func (g LengthGroups) Each(f Family, do func(last int)) {
	for last := 8 * f.AddrLen(); last > 0; last -= LengthsEach {
		if g&GroupOf(last) != 0 {
			do(last)
		}
	}
}

// Fingerprint names the rules and sets of a program, and its options.
func (p Program) Fingerprint(defs []Set) string {
	h := fnv.New64a()
	p.Lengths = GroupOf(8) // one stands for all
	chains := p.Chains()
	for _, m := range Methods() {
		d := Draw{m, ExactDraws + 1}
		chains = append(chains, p.TokenChain(d), p.TokenChain(Draw{m, 1}))
		for _, c := range []Class{{Draw: d}, {Draw: d, Affinity: 1e9}, {Draw: d, Affinity: 1e9, local: true}, {Draw: Draw{m, 1}}, {Draw: d, SamePort: true}} {
			chains = append(chains, p.ClassChain(c))
		}
	}
	for _, d := range defs {
		d.Size = 0 // a set keeps the size with which it was made
		fmt.Fprintln(h, d.Name, d.Declaration())
	}
	for _, c := range chains {
		fmt.Fprintln(h, c.Name, c.Shape())
		for _, r := range c.Rules {
			_, _ = io.WriteString(h, r.String()+"\n") // cannot fail
		}
	}
	var options []string
	for _, f := range p.flags() {
		if *f.on {
			options = append(options, f.word)
		}
	}
	if p.PodInterface != "" {
		options = append(options, "interface "+p.PodInterface)
	}
	if p.AffinityShare != 0 {
		options = append(options, fmt.Sprintf("share %d", p.AffinityShare))
	}
	if p.FastPath != 0 {
		options = append(options, fmt.Sprintf("fast-path %d", p.FastPath))
	}
	return strings.TrimSpace(fmt.Sprintf("program %016x %s", h.Sum64(), strings.Join(options, ", ")))
}

// ChainNamed is the chain of that name; without rules: the program has none.
func (p Program) ChainNamed(name string) Chain {
	for _, c := range p.Chains() {
		if c.Name == name {
			return c
		}
	}
	prefix, rest, _ := strings.Cut(name, "-")
	switch c, ok := ParseClass(rest); {
	case ok && prefix+"-" == TokenPrefix:
		return p.TokenChain(c.Draw)
	case ok && prefix+"-" == TablePrefix:
		return p.TableChain(c.Draw)
	}
	if c, ok := ParseClass(name); ok {
		return p.ClassChain(c)
	}
	return Chain{}
}
