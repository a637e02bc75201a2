package nft

import (
	"slices"

	"golang.org/x/sys/unix"
)

// chainDef is one chain with its rules.
type chainDef struct {
	name  string
	base  *baseDef // nil: reached by jump or goto only
	rules []rule
}

// baseDef is where a base chain hangs.
type baseDef struct {
	kind     string // "nat" or "filter"
	hook     uint32
	hookName string
	priority int32
	text     string // the priority as nft 1.0.6 lists and reads it
}

// header is the first line of a base chain in nft syntax.
func (b *baseDef) header() string {
	return "type " + b.kind + " hook " + b.hookName + " priority " + b.text + "; policy accept;"
}

// Hook priorities are a promise to others (the same as kube-proxy's nftables mode gives): destinations are translated
// at dstnat, sources at srcnat, refusals happen at filter. In the output hook nft 1.0.6 can print but not read the
// name dstnat, hence the number.
func natPrerouting() *baseDef {
	return &baseDef{"nat", unix.NF_INET_PRE_ROUTING, "prerouting", -100, "dstnat"}
}
func natOutput() *baseDef { return &baseDef{"nat", unix.NF_INET_LOCAL_OUT, "output", -100, "-100"} }
func natPostrouting() *baseDef {
	return &baseDef{"nat", unix.NF_INET_POST_ROUTING, "postrouting", 100, "srcnat"}
}

func filterBase(hook uint32, name string, priority int32, text string) *baseDef {
	return &baseDef{"filter", hook, name, priority, text}
}

// program is what the rules depend on besides the family.
type program struct {
	masqueradeAll bool
	podInterface  string // name, or prefix ending in "*"
	podCIDRs      bool
	loopback      bool // node ports answer on a loopback address
	ipvs          bool // virtual servers of IPVS serve some frontends
}

// fromPods matches traffic of local pods; nil when the program cannot tell.
func (f Family) fromPods(p program) []statement {
	switch {
	case p.podInterface != "":
		return []statement{interfaceName(p.podInterface, false)}
	case p.podCIDRs:
		return []statement{in(setPodCIDRs, f.saddr())}
	}
	return nil
}

// notFromPods matches everything else; nil when the program cannot tell.
func (f Family) notFromPods(p program) []statement {
	switch {
	case p.podInterface != "":
		return []statement{interfaceName(p.podInterface, true)}
	case p.podCIDRs:
		return []statement{notIn(setPodCIDRs, f.saddr())}
	}
	return nil
}

// chains is the fixed program. A chain comes before those that jump to it.
func (f Family) chains(p program) []chainDef {
	frontend := key{f.daddr(), l4proto(), dport()}
	list := []chainDef{
		f.recall(false),
		f.recall(true),
		{name: "source-decides", rules: f.sourceDecides(p)},
		{name: "balance", rules: []rule{
			{scratchHas(bySourceBit | limitedBit), jump("source-decides")},
			// Both lookups in one rule: a miss ends it, so that a number left by someone else is never dispatched.
			{setScratch(mapPools, scratch()), dispatchTo(mapDispatch, masked(classMask))},
			{clearScratch()},
		}},
		{name: "services", rules: []rule{
			{setScratch(mapServices, frontend...), goTo("balance")},
			// Source ranges of frontends that no pool serves; of others, when the number says so (source-decides). They are looked
			// at where only the first packet of a connection comes: a filter chain would cost every packet on the node, and a
			// drop keeps the connection from ever being known.
			{in(setFirewalled, frontend...), f.notAllowed(), drop()},
			{in(setNodePortAddresses, f.daddr()), setScratch(mapNodePorts, l4proto(), dport()), goTo("balance")},
		}},
		{name: "nat-prerouting", base: natPrerouting(), rules: []rule{{jump("services")}}},
		{name: "nat-output", base: natOutput(), rules: []rule{{jump("services")}}},
	}
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		list = append(list, chainDef{name: masqueradingChain(proto), rules: f.masquerading(proto)})
	}
	list = append(list, chainDef{name: "to-cluster-ip", rules: f.toClusterIP(p)})
	if p.ipvs {
		list = append(list, f.untranslatedChain())
	}
	list = append(list, chainDef{name: "nat-postrouting", base: natPostrouting(), rules: f.postrouting(p)})
	return append(list, f.filterChains(p)...)
}

func masqueradingChain(proto uint8) string { return "masquerading-" + printProto([]byte{proto}) }

// sourceDecides is for frontends of which not everyone gets the same: that have source ranges, or externalTrafficPolicy
// Local. Of the latter pods and the node itself use all endpoints, everyone else those on this node. It leaves the plain
// number of a pool.
func (f Family) sourceDecides(p program) []rule {
	all := setScratchTo(masked(poolMask))
	rules := []rule{
		{scratchHas(limitedBit), f.notAllowed(), drop()},
		{scratchLacks(bySourceBit), all, returnNow()},
	}
	if pods := f.fromPods(p); pods != nil {
		rules = append(rules, append(pods, all, returnNow()))
	}
	return append(rules,
		rule{fromThisNode(), all, returnNow()},
		rule{setScratchTo(localPool())})
}

// localPool is the local one of the two pools that a number may mean.
func localPool() field {
	return maskedAndFlipped("meta priority & f:ffff | 0:1", groupMask, localBit)
}

// notAllowed matches clients outside the source ranges of the frontend.
func (f Family) notAllowed() statement {
	return notIn(setAllowedSources, f.daddr(), l4proto(), dport(), f.saddr())
}

// postrouting decides by the tuple before DNAT whose source is replaced; no packet mark is used, because marks belong
// to the network plugin.
func (f Family) postrouting(p program) []rule {
	hairpin := rule{in(setHairpin, f.saddr(), f.daddr()), masquerade()}
	toClusterIP := rule{in(setClusterIPs, f.originalDaddr()), goTo("to-cluster-ip")}
	rules := []rule{f.toGuarded(), f.untranslated(p), toClusterIP, hairpin}
	if !p.ipvs {
		// Most connections are to cluster IPs, and what is to one and has come so far was translated: two lookups decide.
		rules = []rule{toClusterIP, f.untranslated(p), hairpin}
	}
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		rules = append(rules, rule{isProtocol(proto), jump(masqueradingChain(proto))})
	}
	return rules
}

// toClusterIP masquerades what does not come from pods, and what an endpoint sends to itself. It ends the matter: the sets
// of other frontends need not be looked up.
func (f Family) toClusterIP(p program) []rule {
	if p.masqueradeAll {
		return []rule{{masquerade()}}
	}
	rules := []rule{{in(setHairpin, f.saddr(), f.daddr()), masquerade()}}
	if others := f.notFromPods(p); others != nil {
		rules = append(rules, append(others, masquerade()))
	}
	return rules
}

// masquerading is the same for each protocol; nft knows the type of "ct original proto-dst" only in a rule that names
// one protocol.
func (f Family) masquerading(proto uint8) []rule {
	is := isProtocol(proto)
	original := key{f.originalDaddr(), l4proto(), originalDport()}
	atNode := in(setNodePortAddresses, f.originalDaddr())
	nodePort := original[1:]
	return []rule{
		{is, in(setMasqueradeAlways, original...), masquerade()},
		{is, in(setMasqueradeNode, original...), fromThisNode(), masquerade()},
		{is, atNode, in(setMasqueradeAlwaysNodePorts, nodePort...), masquerade()},
		{is, atNode, in(setMasqueradeNodeNodePorts, nodePort...), fromThisNode(), masquerade()},
	}
}

func (f Family) filterChains(p program) []chainDef {
	var list []chainDef
	if p.loopback {
		// Node ports on 127.0.0.1 need the sysctl route_localnet, with which the kernel would also take packets for
		// 127.0.0.0/8 from outside (CVE-2020-8558).
		guard := rule{interfaceName("lo", true), toLoopback(), drop()}
		base := filterBase(unix.NF_INET_PRE_ROUTING, "prerouting", -110, "dstnat - 10")
		list = append(list, chainDef{name: "loopback-guard", rules: []rule{guard}, base: base})
	}
	// What was translated is served: nothing below concerns it.
	check := rule{isNew(), isNotTranslated(), jump(unservedChain)}
	return append(list, []chainDef{
		{name: unservedChain, rules: f.unserved(p)},
		{name: "filter-input", rules: []rule{check}, base: filterBase(unix.NF_INET_LOCAL_IN, "input", 0, "filter")},
		{name: "filter-forward", rules: []rule{check}, base: filterBase(unix.NF_INET_FORWARD, "forward", 0, "filter")},
		{name: "filter-output", base: filterBase(unix.NF_INET_LOCAL_OUT, "output", 0, "filter"), rules: []rule{
			// Forwarding overwrites the priority field anyway; what the node itself sends would carry the number on.
			{isNew(), isTranslated(), clearScratch()},
			check,
		}},
	}...)
}

const unservedChain = "unserved"

// unserved refuses what no endpoint can take. It runs after DNAT, so that only packets that were not translated still
// have a frontend as their destination.
func (f Family) unserved(p program) []rule {
	frontend := key{f.daddr(), l4proto(), dport()}
	atNode, nodePort := in(setNodePortAddresses, f.daddr()), frontend[1:]
	rules := []rule{
		{in(setNoLocalEndpoints, frontend...), drop()},
		{atNode, in(setNoLocalEndpointsNodePorts, nodePort...), drop()},
	}
	if p.ipvs {
		rules = append(rules, rule{in(setIPVSFrontends, frontend...), returnNow()})
	}
	rules = append(rules, f.refuse(in(setNoEndpoints, frontend...))...)
	rules = append(rules, f.refuse(atNode, in(setNoEndpointsNodePorts, nodePort...))...)
	// Ports of a cluster IP that no Service uses, and cluster IPs that no Service has.
	rules = append(rules, f.refuse(in(setClusterIPs, f.daddr()))...)
	// IPVS gets only packets to addresses of this host, so its frontends' addresses are made local. Whatever listens on
	// all addresses must not become reachable there (k/k #72236). Without IPVS too: a process that starts over this table
	// with IPVS guards addresses and makes them local before its first apply.
	rules = append(rules, f.refuse(in(setIPVSAddresses, f.daddr()))...)
	return append(rules, rule{in(setServiceCIDRs, f.daddr()), drop()})
}

func (f Family) refuse(match ...statement) []rule {
	tcp := append(rule{isProtocol(unix.IPPROTO_TCP)}, match...)
	others := append(rule{}, match...)
	return []rule{append(tcp, resetTCP()), append(others, f.reject())}
}

// redraws is how often a number without a slot is drawn again. At least every second number has one, so that once in
// 65,536 connections none is found; the last draw then takes from the lower half, where every number has a slot.
const redraws = 16

// attempts lists the draws that end in a slot. The last one is for packets that got the class of a pool just before it
// lost a slot and look up the slot just after: the kernel evaluates a chain as of one generation, but every lookup as of
// now. The first slot is always there. Under TestChurnUnderLoad one connection in 200 needs it.
func (d draw) attempts() []draw {
	list := []draw{d}
	if !d.exact() {
		list = append(slices.Repeat(list, redraws), draw{d.method, d.size / 2})
	}
	if d.size > 1 {
		list = append(list, draw{Random, 1})
	}
	return list
}

// classChain is the chain of a class: it picks a slot of the pool in the scratch number and translates.
func (f Family) classChain(c class) chainDef {
	if c.affinity > 0 {
		return chainDef{name: c.chain(), rules: f.stickyRules(c)}
	}
	var rules []rule
	for _, d := range c.attempts() {
		rules = append(rules, rule{f.dnat(mapEndpoints, masked(poolMask), f.drawn(d))})
	}
	return chainDef{name: c.chain(), rules: rules}
}

// tokenPrefix begins the names of chains that draw tokens.
const tokenPrefix = "token-"

func (d draw) tokenChain() string { return tokenPrefix + d.String() }

// tokenDrawChain draws a token of the pool in the scratch number and leaves it there.
func (f Family) tokenDrawChain(d draw) chainDef {
	var rules []rule
	for _, d := range d.attempts() {
		rules = append(rules, rule{setScratch(mapStickySlots, masked(poolMask), f.drawn(d)), returnNow()})
	}
	return chainDef{name: d.tokenChain(), rules: rules}
}

// stickyRules draws a token (ordinal and service port), has the affinity map overrule it with the client's earlier one,
// and translates. A token whose endpoint is gone, or is not in this pool, does not translate; its entry is removed, and
// the client gets another. All lookups stand in chains shared by many classes (see exactDraws for the reason).
func (f Family) stickyRules(c class) []rule {
	pick, recall := rule{jump(c.tokenChain())}, rule{jump(recallChain(c.local))}
	remember := rule{f.affinityEntry("update", c.affinity)}
	again := pick
	if c.local {
		// A token names the service port; which of the two pools it was drawn from has to be said anew.
		again = rule{setScratchTo(localPool()), jump(c.tokenChain())}
	}
	// The third time is for a client whose endpoint is gone, and which gets another that goes in the same microsecond.
	return []rule{pick, remember, recall, again, remember, recall, again, remember, recall}
}

func recallChain(local bool) string {
	if local {
		return "recall-local"
	}
	return "recall"
}

// recall translates to the endpoint that the client sticks to; without an entry (the map is full), to the one just
// drawn. Tokens name the cluster pool; an endpoint that is in the local pool has a second token for that, so that both
// pools of a service port share what the client sticks to.
func (f Family) recall(local bool) chainDef {
	token := scratch()
	if local {
		token = flipped(localBit)
	}
	return chainDef{name: recallChain(local), rules: []rule{
		{setScratch(mapAffinity, masked(groupMask), f.saddr())},
		{f.dnat(mapStickyEndpoints, token)},
		{f.affinityEntry("delete", 0)},
	}}
}
