package nft

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
	p.affinityShare = tb.affinityShare
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
