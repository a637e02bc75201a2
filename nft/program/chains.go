package program

import (
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// fromPods matches packets of pods; nil: the globals do not tell which packets these are.
func (p Program) fromPods() []rule.Statement {
	switch {
	case p.PodInterface != "":
		return []rule.Statement{rule.InterfaceName(p.PodInterface, false)}
	case p.PodCIDRs:
		return []rule.Statement{rule.In(PodCIDRs, rule.Saddr(p.Family))}
	}
	return nil
}

// Chains are the fixed chains. A chain comes before the chains that jump to it.
func (p Program) Chains() []Chain {
	frontend := rule.Key{rule.Daddr(p.Family), rule.L4Proto(), rule.Dport()}
	list := append(p.sourceChains(), []Chain{
		p.recall(false),
		p.recall(true),
		{Name: "source-decides", Rules: p.sourceDecides()},
		{Name: "balance", Rules: []rule.Rule{
			{rule.ScratchHas(BySourceBit | LimitedBit), rule.Jump("source-decides")},
			// Both lookups are in one rule: if the first one misses, the second one does not see a priority that
			// another program has set.
			{rule.SetScratch(Pools, rule.Scratch()), rule.DispatchTo(Dispatch, rule.Masked(ClassMask))},
		}},
		overtaken(p.Family)[0],
		overtaken(p.Family)[1],
		{Name: serveChain, Rules: []rule.Rule{{rule.Jump("balance")}, {rule.GoTo(OvertakenChain)}}},
		{Name: "services", Rules: []rule.Rule{
			{rule.SetScratch(Services, frontend...), rule.GoTo(serveChain)},
			// This rule checks the source ranges of frontends without a pool; those of other frontends are checked in
			// source-decides. A nat chain sees only the first packet of each connection; a check in a filter chain
			// would cost every packet on the node. The dropped packet leaves no connection behind.
			{rule.SetScratch(Firewalled, frontend...), rule.Jump(limitedOnlyChain)},
			{rule.In(NodePortAddresses, rule.Daddr(p.Family)), rule.SetScratch(NodePorts, rule.L4Proto(), rule.Dport()),
				rule.GoTo(serveChain)},
			// Ranges come last: packets to other frontends do not pay for them. They overlap with no other frontend.
			{rule.SetScratch(RangeServices, frontend...), rule.GoTo(serveChain)},
			{rule.SetScratch(RangeFirewalled, frontend...), rule.Jump(limitedOnlyChain)},
		}},
		{Name: "nat-prerouting", Base: natPrerouting(), Rules: []rule.Rule{{rule.Jump("services")}}},
		{Name: "nat-output", Base: natOutput(), Rules: []rule.Rule{{rule.Jump("services")}}},
	}...)
	list = append(list, Chain{Name: masqueradingSome, Rules: p.masqueradingSome()})
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		list = append(list, Chain{Name: masqueradingChain(proto), Rules: masquerading(p.Family, proto)})
	}
	list = append(list, Chain{Name: "to-cluster-ip", Rules: p.toClusterIP()})
	if p.IPVS {
		list = append(list, passUntranslated(p.Family))
	}
	list = append(list, Chain{Name: "nat-postrouting", Base: natPostrouting(), Rules: p.postrouting()})
	return append(list, p.filterChains()...)
}

const (
	serveChain          = "serve"
	OvertakenChain      = "overtaken"
	overtakenLocalChain = "overtaken-local"
)

// overtaken is for a packet that got the class of its pool just before the pool got another class, and looks up slots just
// after: the kernel evaluates a chain as of one generation, but each lookup as of now, and a chain that is new has no
// rules in the generation before. Such a packet takes the first slot, which every pool has in one map or the other. Under
// TestClassesUnderLoad, one connection in 20,000 needs it. Other packets that come here find nothing: their pool is empty.
func overtaken(f Family) []Chain {
	first := drawn(f, Draw{Random, 1})
	token := rule.SetScratch(StickySlots, rule.Masked(PoolMask), first)
	return []Chain{
		// The slots of a local pool have the tokens of the cluster pool (see recall).
		{Name: overtakenLocalChain, Rules: []rule.Rule{
			{token, rule.DNAT(f, StickyEndpoints, rule.Flipped(LocalBit))},
			// If the first rule has missed, the scratch number is the token, or there is none.
			{rule.DNATAddress(f, StickyAddresses, rule.Flipped(LocalBit))}, {rule.ClearScratch()},
		}},
		{Name: OvertakenChain, Rules: []rule.Rule{
			{rule.DNAT(f, Endpoints, rule.Masked(PoolMask), first)},
			{rule.DNATAddress(f, Addresses, rule.Masked(PoolMask), first)},
			{rule.ScratchHas(LocalBit), rule.GoTo(overtakenLocalChain)},
			{token, rule.DNAT(f, StickyEndpoints, rule.Scratch())},
			{rule.DNATAddress(f, StickyAddresses, rule.Scratch())},
			{rule.ClearScratch()},
		}},
	}
}

func masqueradingChain(proto uint8) string { return "masquerading-" + rule.ProtocolName(proto) }

// sourceDecides is for frontends that treat clients differently: frontends with source ranges, and frontends with
// externalTrafficPolicy Local. With that policy, this node and its pods use all endpoints, and other clients use the endpoints on
// this node. A pod that may be on another node gets an endpoint on this node, if there is one. If not, it gets any endpoint, and
// is masqueraded (masquerading-some): the answer must come back through this node. The chain leaves the plain number of a pool in
// the scratch field.
func (p Program) sourceDecides() []rule.Rule {
	all := rule.SetScratchTo(rule.Masked(PoolMask))
	rules := []rule.Rule{
		{rule.ScratchHas(LimitedBit), rule.Jump(limitedChain)},
		{rule.ScratchLacks(BySourceBit), all, rule.ReturnNow()},
	}
	var others []rule.Rule
	if p.PodInterface != "" {
		rules = append(rules, rule.Rule{rule.InterfaceName(p.PodInterface, false), all, rule.ReturnNow()})
	}
	if p.PodCIDRs {
		pods := rule.In(PodCIDRs, rule.Saddr(p.Family))
		rules = append(rules, rule.Rule{rule.In(NodePodCIDRs, rule.Saddr(p.Family)), all, rule.ReturnNow()})
		others = []rule.Rule{
			{pods, rule.SetScratch(Pools, rule.Scratch()), all, rule.ReturnNow()}, // ends here without a local pool
			{pods, rule.SetScratchTo(rule.Masked(GroupMask))},
		}
	}
	rules = append(rules, rule.Rule{rule.FromThisNode(), all, rule.ReturnNow()}, rule.Rule{rule.SetScratchTo(localPool())})
	return append(rules, others...)
}

// postrouting decides from the destination before DNAT whether to masquerade. It uses no packet mark, because marks
// belong to the network plugin.
func (p Program) postrouting() []rule.Rule {
	hairpin := rule.Rule{rule.In(Hairpin, rule.Saddr(p.Family), rule.Daddr(p.Family)), rule.Masquerade()}
	toClusterIP := rule.Rule{rule.In(ClusterIPs, rule.OriginalDaddr(p.Family)), rule.GoTo("to-cluster-ip")}
	rules := []rule.Rule{toGuarded(p.Family), {rule.IsNotTranslated(), rule.Jump(untranslatedChain)}, toClusterIP, hairpin}
	if !p.IPVS {
		// Most connections are to cluster IPs. Without IPVS, a packet to one that comes this far was translated; so
		// this lookup can come first, and two lookups decide. What was not translated needs no masquerading.
		rules = []rule.Rule{toClusterIP, {rule.IsNotTranslated(), rule.ReturnNow()}, hairpin}
	}
	if p.Fleet {
		rules = append([]rule.Rule{answered(p.Family)}, rules...)
	}
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		rules = append(rules, rule.Rule{rule.IsProtocol(proto), rule.Jump(masqueradingChain(proto))})
	}
	return rules
}

// Several balancers may serve the same addresses (Program.Fleet). When one of them is gone, its connections go on at
// another one, whose connection tracking does not know them. A packet of the client is translated like a first packet: by
// a hash, it reaches the endpoint that it always reached. A packet of the endpoint gets the address of the frontend again;
// connection tracking translates the client's packets back from then on. Only TCP shows that a packet begins no connection.

// answered translates a packet by which an endpoint continues a connection that this node does not know. What this node itself
// sends never belongs to a connection of another one, even if somebody names it as an endpoint.
func answered(f Family) rule.Rule {
	return rule.Rule{rule.IsNotTranslated(), rule.NotFromThisNode(), rule.TCPOnly(), rule.IsNotSYN(), rule.SNAT(f, Answers, rule.Saddr(f), rule.TCPSport())}
}

// toClusterIP masquerades connections to cluster IPs that do not come from pods, and those that an endpoint makes to
// itself. Packets reach it by goto: they skip the lookups for other frontends.
func (p Program) toClusterIP() []rule.Rule {
	if p.MasqueradeAll {
		return []rule.Rule{{rule.Masquerade()}}
	}
	rules := []rule.Rule{{rule.In(Hairpin, rule.Saddr(p.Family), rule.Daddr(p.Family)), rule.Masquerade()}}
	switch { // without any of them, nobody knows which packets come from pods
	case p.PodInterface != "":
		rules = append(rules, rule.Rule{rule.InterfaceName(p.PodInterface, true), rule.Masquerade()})
	case p.PodCIDRs:
		rules = append(rules, rule.Rule{rule.NotIn(PodCIDRs, rule.Saddr(p.Family)), rule.Masquerade()})
	}
	return rules
}

// masquerading has the same rules for each protocol, because nft knows the type of "ct original proto-dst" only in a
// rule that names one protocol.
func masquerading(f Family, proto uint8) []rule.Rule {
	is := rule.IsProtocol(proto)
	original := rule.Key{rule.OriginalDaddr(f), rule.L4Proto(), rule.OriginalDport()}
	atNode := rule.In(NodePortAddresses, rule.OriginalDaddr(f))
	nodePort := original[1:]
	return []rule.Rule{
		{is, rule.In(MasqueradeAlways, original...), rule.Masquerade()},
		{is, rule.In(MasqueradeNode, original...), rule.GoTo(masqueradingSome)},
		{is, atNode, rule.In(MasqueradeAlwaysNodePorts, nodePort...), rule.Masquerade()},
		{is, atNode, rule.In(MasqueradeNodeNodePorts, nodePort...), rule.GoTo(masqueradingSome)},
		{is, rule.In(RangeMasqueradeAlways, original...), rule.Masquerade()},
		{is, rule.In(RangeMasqueradeNode, original...), rule.GoTo(masqueradingSome)},
	}
}

const masqueradingSome = "masquerading-some"

// masqueradingSome masquerades what this node itself sends, and what a pod that may be on another node sends to an endpoint whose
// answers do not come back through this node by themselves.
func (p Program) masqueradingSome() []rule.Rule {
	rules := []rule.Rule{{rule.FromThisNode(), rule.Masquerade()}}
	if p.PodCIDRs {
		src, dst := rule.Saddr(p.Family), rule.Daddr(p.Family)
		rules = append(rules, rule.Rule{rule.In(PodCIDRs, src), rule.NotIn(NodePodCIDRs, src), rule.NotIn(Hairpin, dst, dst), rule.Masquerade()})
	}
	return rules
}

// maxTOSPriority is the largest priority that IPv4 forwarding makes from the TOS field, rounded up to a mask.
const maxTOSPriority = 15

func (p Program) filterChains() []Chain {
	var list []Chain
	if p.Loopback {
		list = append(list, LoopbackGuard())
	}
	list = append(list, Chain{Name: RefuseChain, Rules: refuse(p.Family)},
		// Addresses that belong to Services alone, and that are no cluster IPs.
		Chain{Name: unallocatedChain, Rules: []rule.Rule{{rule.In(ExternalIPs, rule.Daddr(p.Family)), rule.GoTo(RefuseChain)}, {rule.Drop()}}},
		Chain{Name: UnservedChain, Rules: p.Unserved()}, p.newConnections(), p.newForwarded(),
		// What the node itself sends would leave it with the scratch number.
		Chain{Name: newSentChain, Rules: []rule.Rule{forgetScratch(), {rule.Jump(newConnectionsChain)}}})
	// Packets of established connections meet one test in each chain.
	ofOthers := rule.IsNew()
	if p.DropInvalid { // by the same test: others do not pay for it
		ofOthers = rule.IsNewOrInvalid()
	}
	input, forward := []rule.Rule{{ofOthers, rule.Jump(newConnectionsChain)}}, []rule.Rule{{ofOthers, rule.Jump(newForwardedChain)}}
	output := []rule.Rule{{rule.IsNew(), rule.Jump(newSentChain)}}
	if p.Unanswered {
		output = append(output, p.lateErrors()...)
	}
	if p.Refusing {
		list = append(list, p.refused()...)
		look := lookForRefusals()
		input, forward, output = append(input, look), append(forward, look), append(output, look)
	}
	if p.FastPath > 0 {
		list, forward = append(list, toFastPath(p.Family)), append(forward, p.offer())
	}
	return append(list, []Chain{
		{Name: "filter-input", Rules: input, Base: filterBase(unix.NF_INET_LOCAL_IN, "input", 0, "filter")},
		{Name: "filter-forward", Rules: forward, Base: filterBase(unix.NF_INET_FORWARD, "forward", 0, "filter")},
		{Name: "filter-output", Rules: output,
			Base: filterBase(unix.NF_INET_LOCAL_OUT, "output", 0, "filter")},
	}...)
}

// Unserved refuses packets that no endpoint can take. It runs after DNAT: a packet whose destination is still a
// frontend was not translated.
func (p Program) Unserved() []rule.Rule {
	frontend := rule.Key{rule.Daddr(p.Family), rule.L4Proto(), rule.Dport()}
	atNode, nodePort := rule.In(NodePortAddresses, rule.Daddr(p.Family)), frontend[1:]
	rules := []rule.Rule{
		{rule.In(NoLocalEndpoints, frontend...), rule.Drop()},
		{atNode, rule.In(NoLocalEndpointsNodePorts, nodePort...), rule.Drop()},
		{rule.In(RangeNoLocalEndpoints, frontend...), rule.Drop()},
	}
	if p.IPVS {
		rules = append(rules, rule.Rule{rule.In(IPVSFrontends, frontend...), rule.ReturnNow()})
	}
	refuse := rule.GoTo(RefuseChain)
	return append(rules,
		rule.Rule{rule.In(NoEndpoints, frontend...), refuse},
		rule.Rule{atNode, rule.In(NoEndpointsNodePorts, nodePort...), refuse},
		rule.Rule{rule.In(RangeNoEndpoints, frontend...), refuse},
		// Ports of a cluster IP that no Service uses. Addresses of a Service CIDR that no Service has come last.
		rule.Rule{rule.In(ClusterIPs, frontend[0]), refuse},
		// IPVS gets only packets to local addresses, so the addresses of its frontends are made local. A program on the
		// node that listens on all addresses must not become reachable at these (kubernetes/kubernetes #72236). The rules
		// are there without IPVS, too: the next process may use IPVS, and it makes addresses local before its first apply.
		rule.Rule{rule.In(IPVSAddresses, frontend[0]), refuse},
		// An address of this node may be in a Service CIDR, too.
		rule.Rule{rule.In(ServiceCIDRs, frontend[0]), rule.NotToThisNode(), rule.GoTo(unallocatedChain)})
}

const unallocatedChain = "unallocated"

const newForwardedChain, newSentChain = "new-forwarded", "new-sent"

// newForwarded refuses packets to external and load balancer IPs that no port takes, and that leave by the device by which they came:
// they would circle between this node and its router until their TTL ends. Such an address can belong to others as well (another
// node, another cluster), so all others pass. So do packets that came by a bridge or a VRF: one that calls iptables carries packets
// from port to port, such as from one virtual machine to another, and to the kernel, its ports are one device.
func (p Program) newForwarded() Chain {
	// Forwarded IPv6 packets would leave the node with the scratch number. IPv4 forwarding sets the field from the TOS field before
	// this hook, and that value must stay. A bridge that calls iptables forwards without that, so what no TOS gives is cleared.
	forget := rule.Rule{rule.IsTranslated(), rule.ScratchHas(^uint32(maxTOSPriority)), rule.ClearScratch()}
	if p.Family == IPv6 {
		forget = forgetScratch()
	}
	rules := []rule.Rule{forget, {rule.Jump(newConnectionsChain)}}
	if !p.Circles {
		rules = append(rules, rule.Rule{rule.IsNotTranslated(), rule.In(ExternalIPs, rule.Daddr(p.Family)), rule.GoesBack(),
			rule.NotBy("bridge"), rule.NotBy("vrf"), rule.GoTo(RefuseChain)})
	}
	return Chain{Name: newForwardedChain, Rules: rules}
}

func forgetScratch() rule.Rule { return rule.Rule{rule.IsTranslated(), rule.ClearScratch()} }

// Node ports on 127.0.0.1 need the sysctl route_localnet, with which the kernel also accepts packets for 127.0.0.0/8
// from outside (CVE-2020-8558). A rule drops those. It stands in two places:
//   - in table "ip verdict" while node ports answer on a loopback address. The engine repairs it with that table;
//   - in a table of its own, from before the sysctl is set until after it is restored. This one does not depend on what
//     the engine does, and an init container, which sets the sysctl and has no engine, can write it. Its comment records
//     the sysctl's former value, for as long as the kernel has the value that Verdict set.

// LoopbackTableName is the name of the table "ip verdict-loopback".
const LoopbackTableName = "verdict-loopback"

const LoopbackGuardChain = "loopback-guard"

// LoopbackGuard drops packets to 127.0.0.0/8 that do not come from this host.
func LoopbackGuard() Chain {
	return Chain{
		Name:  LoopbackGuardChain,
		Base:  filterBase(unix.NF_INET_PRE_ROUTING, "prerouting", -110, "dstnat - 10"),
		Rules: []rule.Rule{{rule.InterfaceName("lo", true), rule.ToLoopback(), rule.Drop()}},
	}
}

// This file has what the program does for frontends that IPVS serves. The nat chains do not translate their packets,
// the filter chains do not refuse them, and postrouting masquerades them as it masquerades translated ones.
//
// In the input hook, IPVS takes packets after the filter chains (priority 99). In the output hook, it takes them just
// after the translation (priority -98). It sends both on through the hooks output and postrouting. There, "ct
// original" is the destination before IPVS, if the sysctl net.ipv4.vs.conntrack is 1.

const untranslatedChain = "untranslated"

// toGuarded masquerades packets that this host sends to a Service at an address that is local for IPVS. An IPv4 packet
// has that very address as its source, and the endpoint would answer another host, or itself. An IPv6 packet may have
// any address of this host, even one that does not belong to the link that it leaves by. The rule applies while the
// address is local, whichever engine serves the port: while a virtual server drains, nft serves it.
func toGuarded(f Family) rule.Rule {
	return rule.Rule{rule.In(IPVSAddresses, rule.OriginalDaddr(f)), rule.FromThisNode(), rule.Masquerade()}
}

// passUntranslated is the chain that returns for packets that IPVS has balanced, so that they may be masqueraded. It accepts all others.
func passUntranslated(f Family) Chain {
	var rules []rule.Rule
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		is := rule.IsProtocol(proto)
		original := rule.Key{rule.OriginalDaddr(f), rule.L4Proto(), rule.OriginalDport()}
		rules = append(rules,
			rule.Rule{is, rule.In(IPVSFrontends, original...), rule.ReturnNow()},
			rule.Rule{is, rule.In(NodePortAddresses, rule.OriginalDaddr(f)), rule.In(IPVSNodePorts, original[1:]...), rule.ReturnNow()})
	}
	return Chain{Name: untranslatedChain, Rules: append(rules, rule.Rule{rule.Accept()})}
}
