package program

import (
	"github.com/verdict-proxy/verdict/nft/rule"
)

// The kernel notices endpoints that do not answer. A client repeats its first packet after a second. At that time,
// connection tracking has confirmed the connection, but has seen no reply, so the packet is still "new". Only such
// packets reach the set "unanswered". The set "refusing" has the endpoints that refuse connections (see
// heldback.go); its rules look at every packet that is not of an assured connection, so they are there only on request.
//
// An element is an endpoint, and not a client: forged source addresses make no further elements. Elements live for
// SuspectTimeout, and the sets are bounded. When a set is full, further endpoints are not noticed until others have
// timed out; connections are not affected.

// Readers poll: nf_tables sends events only for what a transaction changes, and none for elements that packets add
// (TestNobodyTellsOfSuspects). BenchmarkReadSuspects says what a look costs.

const newConnectionsChain = "new-connections"

// newConnections sees the first packet of each connection, and its repetitions.
//
// A packet of this node to itself comes twice. Connection tracking has confirmed it between the hooks output and input, so
// at input the first one looks like a repetition. Repetitions are noticed at output.
func (p Program) newConnections() Chain {
	rules := []rule.Rule{{rule.IsTranslated(), rule.IsRepeated(), rule.InterfaceName("lo", true), rule.TCPOnly(),
		suspect(Unanswered, rule.Key{rule.Daddr(p.Family), rule.TCPDport()})}}
	if p.IPVS {
		// IPVS does not set the status dnat. At the hook input, the packet still has the address of the frontend.
		suspect := []rule.Statement{rule.NotToThisNode(), rule.TCPOnly(), suspect(Unanswered, rule.Key{rule.Daddr(p.Family), rule.TCPDport()})}
		for _, set := range []SetID{IPVSAddresses, NodePortAddresses} {
			rules = append(rules, append(rule.Rule{rule.IsNotTranslated(), rule.IsRepeated(), rule.In(set, rule.OriginalDaddr(p.Family))}, suspect...))
		}
	}
	return Chain{Name: newConnectionsChain, Rules: append(rules, rule.Rule{rule.IsNotTranslated(), rule.Jump(UnservedChain)})}
}

// lateErrors drops what this node itself tells the clients of connections that were deleted. The first packets of clients
// wait while the kernel asks for the neighbor's address. When it gives up after 3 seconds, it sends "host unreachable" for
// each of them. The error keeps the connection of the packet, so it finds the client although the connection was deleted,
// and the client would give up before its next packet reaches another endpoint. Connections that IPVS carries are those to
// its addresses and to node ports that are not translated.
func (p Program) lateErrors() []rule.Rule {
	rules := []rule.Rule{{rule.IsRelated(), rule.IsTranslated(), rule.IsDeleted(), rule.Drop()}}
	if p.IPVS {
		rules = append(rules,
			rule.Rule{rule.IsRelated(), rule.IsDeleted(), rule.In(IPVSAddresses, rule.OriginalDaddr(p.Family)), rule.Drop()},
			rule.Rule{rule.IsRelated(), rule.IsDeleted(), rule.In(NodePortAddresses, rule.OriginalDaddr(p.Family)), rule.Drop()})
	}
	return rules
}
