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

// baseDef is the hook of a base chain.
type baseDef struct {
	kind     string // "nat" or "filter"
	hook     uint32
	hookName string
	priority int32
	text     string // the priority, in the form that nft 1.0.6 both lists and reads
}

// header is the first line of a base chain in nft syntax.
func (b *baseDef) header() string {
	return "type " + b.kind + " hook " + b.hookName + " priority " + b.text + "; policy accept;"
}

// Other software on the node relies on the hook priorities, which are those of kube-proxy's nftables mode: destinations
// are translated at dstnat, sources at srcnat, and packets are refused at filter. For the output hook, nft 1.0.6 prints
// the name dstnat but does not read it; so the text there is a number.
func natPrerouting() *baseDef {
	return &baseDef{kind: "nat", hook: unix.NF_INET_PRE_ROUTING, hookName: "prerouting", priority: -100, text: "dstnat"}
}

func natOutput() *baseDef {
	return &baseDef{kind: "nat", hook: unix.NF_INET_LOCAL_OUT, hookName: "output", priority: -100, text: "-100"}
}

func natPostrouting() *baseDef {
	return &baseDef{kind: "nat", hook: unix.NF_INET_POST_ROUTING, hookName: "postrouting", priority: 100, text: "srcnat"}
}

func filterBase(hook uint32, name string, priority int32, text string) *baseDef {
	return &baseDef{kind: "filter", hook: hook, hookName: name, priority: priority, text: text}
}

// fromPods matches packets of the pods on this node; nil: the globals do not tell which packets these are.
func (p program) fromPods() []statement {
	switch {
	case p.podInterface != "":
		return []statement{interfaceName(p.podInterface, false)}
	case p.podCIDRs:
		return []statement{in(setPodCIDRs, p.saddr())}
	}
	return nil
}

// notFromPods matches all other packets; nil: the globals do not tell which packets these are.
func (p program) notFromPods() []statement {
	switch {
	case p.podInterface != "":
		return []statement{interfaceName(p.podInterface, true)}
	case p.podCIDRs:
		return []statement{notIn(setPodCIDRs, p.saddr())}
	}
	return nil
}

// chains are the fixed chains. A chain comes before the chains that jump to it.
func (p program) chains() []chainDef {
	frontend := key{p.daddr(), l4proto(), dport()}
	list := append(p.sourceChains(), []chainDef{
		p.recall(false),
		p.recall(true),
		{name: "source-decides", rules: p.sourceDecides()},
		{name: "balance", rules: []rule{
			{scratchHas(bySourceBit | limitedBit), jump("source-decides")},
			// Both lookups are in one rule: if the first one misses, the second one does not see a priority that
			// another program has set.
			{setScratch(mapPools, scratch()), dispatchTo(mapDispatch, masked(classMask))},
		}},
		p.overtaken()[0],
		p.overtaken()[1],
		{name: serveChain, rules: []rule{{jump("balance")}, {goTo(overtakenChain)}}},
		{name: "services", rules: []rule{
			{setScratch(mapServices, frontend...), goTo(serveChain)},
			// This rule checks the source ranges of frontends without a pool; those of other frontends are checked in
			// source-decides. A nat chain sees only the first packet of each connection; a check in a filter chain
			// would cost every packet on the node. The dropped packet leaves no connection behind.
			{setScratch(mapFirewalled, frontend...), jump(limitedOnlyChain)},
			{in(setNodePortAddresses, p.daddr()), setScratch(mapNodePorts, l4proto(), dport()), goTo(serveChain)},
		}},
		{name: "nat-prerouting", base: natPrerouting(), rules: []rule{{jump("services")}}},
		{name: "nat-output", base: natOutput(), rules: []rule{{jump("services")}}},
	}...)
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

const (
	serveChain          = "serve"
	overtakenChain      = "overtaken"
	overtakenLocalChain = "overtaken-local"
)

// overtaken is for a packet that got the class of its pool just before the pool got another class, and looks up slots just
// after: the kernel evaluates a chain as of one generation, but each lookup as of now, and a chain that is new has no
// rules in the generation before. Such a packet takes the first slot, which every pool has in one map or the other. Under
// TestClassesUnderLoad, one connection in 20,000 needs it. Other packets that come here find nothing: their pool is empty.
func (p program) overtaken() []chainDef {
	first := p.drawn(draw{Random, 1})
	token := setScratch(mapStickySlots, masked(poolMask), first)
	return []chainDef{
		// The slots of a local pool have the tokens of the cluster pool (see recall).
		{name: overtakenLocalChain, rules: []rule{{token, p.dnat(mapStickyEndpoints, flipped(localBit))}, {clearScratch()}}},
		{name: overtakenChain, rules: []rule{
			{p.dnat(mapEndpoints, masked(poolMask), first)},
			{scratchHas(localBit), goTo(overtakenLocalChain)},
			{token, p.dnat(mapStickyEndpoints, scratch())},
			{clearScratch()},
		}},
	}
}

func masqueradingChain(proto uint8) string { return "masquerading-" + printProto([]byte{proto}) }

// sourceDecides is for frontends that treat clients differently: frontends with source ranges, and frontends with
// externalTrafficPolicy Local. With that policy, pods and the node itself use all endpoints, and other clients use the
// endpoints on this node. The chain leaves the plain number of a pool in the scratch field.
func (p program) sourceDecides() []rule {
	all := setScratchTo(masked(poolMask))
	rules := []rule{
		{scratchHas(limitedBit), jump(limitedChain)},
		{scratchLacks(bySourceBit), all, returnNow()},
	}
	if pods := p.fromPods(); pods != nil {
		rules = append(rules, append(pods, all, returnNow()))
	}
	return append(rules,
		rule{fromThisNode(), all, returnNow()},
		rule{setScratchTo(localPool())})
}

// localPool is the local pool of the service port in the scratch number.
func localPool() field {
	return maskedWith(groupMask, localBit)
}

// postrouting decides from the destination before DNAT whether to masquerade. It uses no packet mark, because marks
// belong to the network plugin.
func (p program) postrouting() []rule {
	hairpin := rule{in(setHairpin, p.saddr(), p.daddr()), masquerade()}
	toClusterIP := rule{in(setClusterIPs, p.originalDaddr()), goTo("to-cluster-ip")}
	rules := []rule{p.toGuarded(), p.untranslated(), toClusterIP, hairpin}
	if !p.ipvs {
		// Most connections are to cluster IPs. Without IPVS, a packet to one that comes this far was translated; so
		// this lookup can come first, and two lookups decide.
		rules = []rule{toClusterIP, p.untranslated(), hairpin}
	}
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		rules = append(rules, rule{isProtocol(proto), jump(masqueradingChain(proto))})
	}
	return rules
}

// toClusterIP masquerades connections to cluster IPs that do not come from pods, and those that an endpoint makes to
// itself. Packets reach it by goto: they skip the lookups for other frontends.
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

// masquerading has the same rules for each protocol, because nft knows the type of "ct original proto-dst" only in a
// rule that names one protocol.
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
		list = append(list, loopbackGuard())
	}
	// A translated packet has an endpoint, so only the others are checked.
	check := rule{isNew(), isNotTranslated(), jump(unservedChain)}
	// Packets of the node itself and forwarded IPv6 packets would leave the node with the scratch number. IPv4
	// forwarding sets the field from the TOS field before this hook, and that value must stay.
	forget := rule{isNew(), isTranslated(), clearScratch()}
	list = append(list, chainDef{name: unservedChain, rules: p.unserved()})
	if p.unanswered {
		// Packets of established connections still meet one test in each chain, and a second one on the way out of a
		// program of this node.
		list = append(list, p.newConnections())
		check = rule{isNew(), jump(newConnectionsChain)}
	}
	input, forward := []rule{check}, []rule{check}
	if p.family == IPv6 {
		forward = []rule{forget, check}
	}
	output := []rule{forget, check}
	if p.unanswered {
		output = append(output, p.lateErrors()...)
	}
	if p.refusing {
		list = append(list, p.refused()...)
		look := p.lookForRefusals()
		input, forward, output = append(input, look), append(forward, look), append(output, look)
	}
	return append(list, []chainDef{
		{name: "filter-input", rules: input, base: filterBase(unix.NF_INET_LOCAL_IN, "input", 0, "filter")},
		{name: "filter-forward", rules: forward, base: filterBase(unix.NF_INET_FORWARD, "forward", 0, "filter")},
		{name: "filter-output", rules: output,
			base: filterBase(unix.NF_INET_LOCAL_OUT, "output", 0, "filter")},
	}...)
}

const unservedChain = "unserved"

// unserved refuses packets that no endpoint can take. It runs after DNAT: a packet whose destination is still a
// frontend was not translated.
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
	// Ports of a cluster IP that no Service uses. Addresses of a Service CIDR that no Service has come last.
	rules = append(rules, p.refuse(in(setClusterIPs, p.daddr()))...)
	// IPVS gets only packets to local addresses, so the addresses of its frontends are made local. A program on the
	// node that listens on all addresses must not become reachable at these (kubernetes/kubernetes #72236). The rules
	// are there without IPVS, too: the next process may use IPVS, and it makes addresses local before its first apply.
	rules = append(rules, p.refuse(in(setIPVSAddresses, p.daddr()))...)
	// An address of this node may be in a Service CIDR, too.
	return append(rules, rule{in(setServiceCIDRs, p.daddr()), notToThisNode(), drop()})
}

func (p program) refuse(match ...statement) []rule {
	tcp := append(rule{isProtocol(unix.IPPROTO_TCP)}, match...)
	others := append(rule{}, match...)
	return []rule{append(tcp, resetTCP()), append(others, p.reject())}
}

// redraws is how often a class draws again when its number has no slot. At least every second number has a slot, so one
// connection in 65,536 finds none. The last draw is from the lower half, in which every number has a slot.
const redraws = 16

// attempts lists the draws of a class, in order; the first one that hits a slot counts. The last one always takes the
// first slot, which every pool has. It is for a packet that got the class of its pool just before the pool lost a slot,
// and looks up the slot just after: the kernel evaluates a chain as of one generation, but each lookup as of now. Under
// TestChurnUnderLoad one connection in 200 needs it.
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

// perAttempt is a rule for each attempt. Equal attempts share one.
func (d draw) perAttempt(build func(draw) rule) (rules []rule) {
	of := map[draw]rule{}
	for _, a := range d.attempts() {
		if of[a] == nil {
			of[a] = build(a)
		}
		rules = append(rules, of[a])
	}
	return rules
}

// classChain is the chain of a class: it draws a slot of the pool in the scratch number, and translates.
func (p program) classChain(c class) chainDef {
	if c.affinity > 0 {
		return chainDef{name: c.chain(), rules: p.stickyRules(c)}
	}
	if c.hashed() {
		return chainDef{name: c.chain(), rules: p.hashedRules(c)}
	}
	return chainDef{name: c.chain(), rules: c.perAttempt(func(d draw) rule {
		return rule{p.dnat(mapEndpoints, masked(poolMask), p.drawn(d))}
	})}
}

// tokenPrefix begins the names of chains that draw tokens.
const tokenPrefix = "token-"

func (d draw) tokenChain() string { return tokenPrefix + d.String() }

// tokenDrawChain draws a token of the pool in the scratch number and leaves it there.
func (p program) tokenDrawChain(d draw) chainDef {
	return chainDef{name: d.tokenChain(), rules: d.perAttempt(func(d draw) rule {
		return rule{setScratch(mapStickySlots, masked(poolMask), p.drawn(d)), returnNow()}
	})}
}

// stickyRules draws a token (ordinal and service port), lets the affinity map replace it by the client's earlier token,
// and translates. A token does not translate if its endpoint is gone or is not in this pool: then the entry is removed,
// and the client gets another token. All lookups are in chains that many classes share (exactDraws says why).
func (p program) stickyRules(c class) []rule {
	pick, recall := rule{jump(c.tokenChain())}, rule{jump(recallChain(c.local))}
	remember := rule{p.affinityEntry("update", c.affinity)}
	again := pick
	if c.local {
		// A token names only the service port. So the scratch number has to name the local pool again.
		again = rule{setScratchTo(localPool()), jump(c.tokenChain())}
	}
	// The third attempt is for a client whose endpoint is gone, and whose next endpoint goes in the same microsecond.
	rules := []rule{pick, remember, recall, again, remember, recall, again, remember, recall}
	if c.local {
		rules = append(rules, rule{setScratchTo(localPool())}) // see overtaken
	}
	return rules
}

func recallChain(local bool) string {
	if local {
		return "recall-local"
	}
	return "recall"
}

// recall translates to the endpoint in the client's affinity entry. If the client has no entry because the map is full,
// it translates to the endpoint just drawn. Entries hold tokens of the cluster pool. An endpoint in the local pool has
// a second token for that pool, so one entry is good for both pools of a service port.
func (p program) recall(local bool) chainDef {
	token := scratch()
	if local {
		token = flipped(localBit)
	}
	return chainDef{name: recallChain(local), rules: []rule{
		{setScratch(mapAffinity, p.clientKey(hashRegister)...)},
		{p.dnat(mapStickyEndpoints, token)},
		{p.affinityEntry("delete", 0)},
	}}
}
