package nft

import (
	"fmt"
	"strings"
)

// program is what one family's table consists of: its methods make the sets (sets.go), the chains and their rules
// (chains.go, ipvs.go). Besides the family, the rules of the fixed chains depend on the globals; everything else is the
// same for all of them.
type program struct {
	family Family

	masqueradeAll bool
	podInterface  string // name, or prefix ending in "*"
	podCIDRs      bool
	loopback      bool // node ports answer on a loopback address
	ipvs          bool // virtual servers of IPVS serve some frontends
	unanswered    bool // endpoints that do not answer are noticed
	refusing      bool // endpoints that refuse connections are noticed

	affinityShare uint32 // client numbers are below it; 0: defaultAffinityShare
	lengths       lengthGroups
}

// program is the program of one family under these globals.
func (g *Globals) program(f Family) program {
	p := program{
		family: f, masqueradeAll: g.MasqueradeAll, podInterface: g.PodInterface, ipvs: g.IPVS,
		unanswered: g.Unanswered, refusing: g.Refusing,
	}
	for _, c := range g.PodCIDRs {
		p.podCIDRs = p.podCIDRs || FamilyOf(c.Addr()) == f
	}
	for _, a := range g.NodePortAddresses {
		p.loopback = p.loopback || f == IPv4 && a.Is4() && a.IsLoopback()
	}
	return p
}

// program is the table's program under the globals that are wanted.
func (tb *table) program() program {
	p := tb.globals.program(tb.family)
	p.affinityShare, p.lengths = tb.affinityShare, tb.lengths
	return p
}

// flags are the options that are on or off, by the words that stand for them in the fingerprint.
func (p *program) flags() []programFlag {
	return []programFlag{
		{"masquerade-all", &p.masqueradeAll}, {"pod-cidrs", &p.podCIDRs}, {"loopback", &p.loopback}, {"ipvs", &p.ipvs},
		{"unanswered", &p.unanswered}, {"refusing", &p.refusing},
	}
}

type programFlag struct {
	word string
	on   *bool
}

// options are the words of a program in its fingerprint.
func (p program) options() string {
	var words []string
	for _, f := range p.flags() {
		if *f.on {
			words = append(words, f.word)
		}
	}
	if p.podInterface != "" {
		words = append(words, "interface "+p.podInterface)
	}
	if p.affinityShare != 0 {
		words = append(words, fmt.Sprintf("share %d", p.affinityShare))
	}
	return strings.Join(words, ", ")
}

// parseProgram is the program with these options. Words that it does not know are those of another version.
func parseProgram(f Family, options string) program {
	p := program{family: f}
	for word := range strings.SplitSeq(options, ", ") {
		for _, f := range p.flags() {
			*f.on = *f.on || f.word == word
		}
		if name, ok := strings.CutPrefix(word, "interface "); ok {
			p.podInterface = name
		}
		_, _ = fmt.Sscanf(word, "share %d", &p.affinityShare) // 0 for other words
	}
	return p
}

func (p program) addrType() dataType {
	if p.family == IPv6 {
		return typeIPv6
	}
	return typeIPv4
}

// saddrOffset and daddrOffset are places in the network header (RFC 791, RFC 8200).
func (p program) saddrOffset() uint32 {
	if p.family == IPv6 {
		return 8
	}
	return 12
}

func (p program) daddrOffset() uint32 {
	if p.family == IPv6 {
		return 24
	}
	return 16
}
