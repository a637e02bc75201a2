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

// fromPods matches traffic of local pods; nil when the program cannot tell.
func (p program) fromPods() []statement {
	switch {
	case p.podInterface != "":
		return []statement{interfaceName(p.podInterface, false)}
	case p.podCIDRs:
		return []statement{in(setPodCIDRs, p.saddr())}
	}
	return nil
}

// notFromPods matches everything else; nil when the program cannot tell.
func (p program) notFromPods() []statement {
	switch {
	case p.podInterface != "":
		return []statement{interfaceName(p.podInterface, true)}
	case p.podCIDRs:
		return []statement{notIn(setPodCIDRs, p.saddr())}
	}
	return nil
}

// chains is the fixed program. A chain comes before those that jump to it.
func (p program) chains() []chainDef {
	frontend := key{p.daddr(), l4proto(), dport()}
	list := []chainDef{
		p.recall(false),
		p.recall(true),
		{name: "source-decides", rules: p.sourceDecides()},
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
			{in(setFirewalled, frontend...), p.notAllowed(), drop()},
			{in(setNodePortAddresses, p.daddr()), setScratch(mapNodePorts, l4proto(), dport()), goTo("balance")},
		}},
		{name: "nat-prerouting", base: natPrerouting(), rules: []rule{{jump("services")}}},
		{name: "nat-output", base: natOutput(), rules: []rule{{jump("services")}}},
	}
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		list = append(list, chainDef{name: masqueradingChain(proto), rules: p.masquerading(proto)})
	}
	list = append(list, chainDef{name: "to-cluster-ip", rules: p.toClusterIP()})
	if p.ipvs {
		list = append(list, p.untranslatedChain())
	}
	list = append(list, chainDef{name: "nat-postrouting", base: natPostrouting(), rules: p.postrouting()})
	return append(list, p.filterChains()...)
}

func masqueradingChain(proto uint8) string { return "masquerading-" + printProto([]byte{proto}) }

// sourceDecides is for frontends of which not everyone gets the same: that have source ranges, or externalTrafficPolicy
// Local. Of the latter pods and the node itself use all endpoints, everyone else those on this node. It leaves the plain
// number of a pool.
func (p program) sourceDecides() []rule {
	all := setScratchTo(masked(poolMask))
	rules := []rule{
		{scratchHas(limitedBit), p.notAllowed(), drop()},
		{scratchLacks(bySourceBit), all, returnNow()},
	}
	if pods := p.fromPods(); pods != nil {
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
func (p program) notAllowed() statement {
	return notIn(setAllowedSources, p.daddr(), l4proto(), dport(), p.saddr())
}

// postrouting decides by the tuple before DNAT whose source is replaced; no packet mark is used, because marks belong
// to the network plugin.
func (p program) postrouting() []rule {
	hairpin := rule{in(setHairpin, p.saddr(), p.daddr()), masquerade()}
	toClusterIP := rule{in(setClusterIPs, p.originalDaddr()), goTo("to-cluster-ip")}
	rules := []rule{p.toGuarded(), p.untranslated(), toClusterIP, hairpin}
	if !p.ipvs {
		// Most connections are to cluster IPs, and what is to one and has come so far was translated: two lookups decide.
		rules = []rule{toClusterIP, p.untranslated(), hairpin}
	}
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		rules = append(rules, rule{isProtocol(proto), jump(masqueradingChain(proto))})
	}
	return rules
}

// toClusterIP masquerades what does not come from pods, and what an endpoint sends to itself. It ends the matter: the sets
// of other frontends need not be looked up.
func (p program) toClusterIP() []rule {
	if p.masqueradeAll {
		return []rule{{masquerade()}}
	}
	rules := []rule{{in(setHairpin, p.saddr(), p.daddr()), masquerade()}}
	if others := p.notFromPods(); others != nil {
		rules = append(rules, append(others, masquerade()))
	}
	return rules
}

// masquerading is the same for each protocol; nft knows the type of "ct original proto-dst" only in a rule that names
// one protocol.
func (p program) masquerading(proto uint8) []rule {
	is := isProtocol(proto)
	original := key{p.originalDaddr(), l4proto(), originalDport()}
	atNode := in(setNodePortAddresses, p.originalDaddr())
	nodePort := original[1:]
	return []rule{
		{is, in(setMasqueradeAlways, original...), masquerade()},
		{is, in(setMasqueradeNode, original...), fromThisNode(), masquerade()},
		{is, atNode, in(setMasqueradeAlwaysNodePorts, nodePort...), masquerade()},
		{is, atNode, in(setMasqueradeNodeNodePorts, nodePort...), fromThisNode(), masquerade()},
	}
}

func (p program) filterChains() []chainDef {
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
		{name: unservedChain, rules: p.unserved()},
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
func (p program) unserved() []rule {
	frontend := key{p.daddr(), l4proto(), dport()}
	atNode, nodePort := in(setNodePortAddresses, p.daddr()), frontend[1:]
	rules := []rule{
		{in(setNoLocalEndpoints, frontend...), drop()},
		{atNode, in(setNoLocalEndpointsNodePorts, nodePort...), drop()},
	}
	if p.ipvs {
		rules = append(rules, rule{in(setIPVSFrontends, frontend...), returnNow()})
	}
	rules = append(rules, p.refuse(in(setNoEndpoints, frontend...))...)
	rules = append(rules, p.refuse(atNode, in(setNoEndpointsNodePorts, nodePort...))...)
	// Ports of a cluster IP that no Service uses, and cluster IPs that no Service has.
	rules = append(rules, p.refuse(in(setClusterIPs, p.daddr()))...)
	// IPVS gets only packets to addresses of this host, so its frontends' addresses are made local. Whatever listens on
	// all addresses must not become reachable there (k/k #72236). Without IPVS too: a process that starts over this table
	// with IPVS guards addresses and makes them local before its first apply.
	rules = append(rules, p.refuse(in(setIPVSAddresses, p.daddr()))...)
	return append(rules, rule{in(setServiceCIDRs, p.daddr()), drop()})
}

func (p program) refuse(match ...statement) []rule {
	tcp := append(rule{isProtocol(unix.IPPROTO_TCP)}, match...)
	others := append(rule{}, match...)
	return []rule{append(tcp, resetTCP()), append(others, p.reject())}
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
func (p program) classChain(c class) chainDef {
	if c.affinity > 0 {
		return chainDef{name: c.chain(), rules: p.stickyRules(c)}
	}
	var rules []rule
	for _, d := range c.attempts() {
		rules = append(rules, rule{p.dnat(mapEndpoints, masked(poolMask), p.drawn(d))})
	}
	return chainDef{name: c.chain(), rules: rules}
}

// tokenPrefix begins the names of chains that draw tokens.
const tokenPrefix = "token-"

func (d draw) tokenChain() string { return tokenPrefix + d.String() }

// tokenDrawChain draws a token of the pool in the scratch number and leaves it there.
func (p program) tokenDrawChain(d draw) chainDef {
	var rules []rule
	for _, d := range d.attempts() {
		rules = append(rules, rule{setScratch(mapStickySlots, masked(poolMask), p.drawn(d)), returnNow()})
	}
	return chainDef{name: d.tokenChain(), rules: rules}
}

// stickyRules draws a token (ordinal and service port), has the affinity map overrule it with the client's earlier one,
// and translates. A token whose endpoint is gone, or is not in this pool, does not translate; its entry is removed, and
// the client gets another. All lookups stand in chains shared by many classes (see exactDraws for the reason).
func (p program) stickyRules(c class) []rule {
	pick, recall := rule{jump(c.tokenChain())}, rule{jump(recallChain(c.local))}
	remember := rule{p.affinityEntry("update", c.affinity)}
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
func (p program) recall(local bool) chainDef {
	token := scratch()
	if local {
		token = flipped(localBit)
	}
	return chainDef{name: recallChain(local), rules: []rule{
		{setScratch(mapAffinity, masked(groupMask), p.saddr())},
		{p.dnat(mapStickyEndpoints, token)},
		{p.affinityEntry("delete", 0)},
	}}
}
