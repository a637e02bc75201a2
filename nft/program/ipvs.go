package program

import (
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// This file has what the program does for frontends that IPVS serves. The nat chains do not translate their packets,
// the filter chains do not refuse them, and postrouting masquerades them as it masquerades translated ones.
//
// In the input hook, IPVS takes packets after the filter chains (priority 99). In the output hook, it takes them just
// after the translation (priority -98). It sends both on through the hooks output and postrouting. There, "ct
// original" is the destination before IPVS, if the sysctl net.ipv4.vs.conntrack is 1.

const untranslatedChain = "untranslated"

// untranslated is the rule for packets that were not translated. Without IPVS, they need no masquerading.
func (p Program) untranslated() rule.Rule {
	if p.IPVS {
		return rule.Rule{rule.IsNotTranslated(), rule.Jump(untranslatedChain)}
	}
	return rule.Rule{rule.IsNotTranslated(), rule.ReturnNow()}
}

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
