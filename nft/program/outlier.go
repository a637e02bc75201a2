package program

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// The kernel notices endpoints that do not answer. A client repeats its first packet after a second. At that time,
// connection tracking has confirmed the connection, but has seen no reply, so the packet is still "new". Only such
// packets reach the set "unanswered". The set "refusing" has the endpoints that refuse connections (see
// below); its rules look at every packet that is not of an assured connection, so they are there only on request.
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
	var rules []rule.Rule
	if pods := p.fromPods(); p.DropInvalid && pods != nil {
		// Such a packet passes without translation. The client sees the address of the pod, or this node is the client and
		// has no such socket, and resets the connection. It has no status, so the rules below do not match.
		rules = append(rules, append(append(rule.Rule{rule.IsInvalid()}, pods...), rule.Drop()))
	}
	if p.Unanswered {
		rules = append(rules, rule.Rule{rule.IsTranslated(), rule.IsRepeated(), rule.InterfaceName("lo", true), rule.TCPOnly(),
			suspect(Unanswered, rule.Key{rule.Daddr(p.Family), rule.TCPDport()})})
	}
	if p.Unanswered && p.IPVS {
		// IPVS does not set the status dnat. At the hook input, the packet still has the address of the frontend.
		suspect := []rule.Statement{rule.NotToThisNode(), rule.TCPOnly(), suspect(Unanswered, rule.Key{rule.Daddr(p.Family), rule.TCPDport()})}
		for _, set := range []SetID{IPVSAddresses, NodePortAddresses} {
			rules = append(rules, append(rule.Rule{rule.IsNotTranslated(), rule.IsRepeated(), rule.In(set, rule.OriginalDaddr(p.Family))}, suspect...))
		}
	}
	// No endpoint is in a range of Services, so somebody else has translated a packet that goes there: it is like one that nobody
	// has translated. An external IP in such a range may be served by other nodes.
	return Chain{Name: newConnectionsChain, Rules: append(rules, rule.Rule{rule.IsNotTranslated(), rule.Jump(UnservedChain)},
		rule.Rule{rule.IsTranslated(), rule.In(ServiceCIDRs, rule.Daddr(p.Family)), rule.NotIn(ExternalIPs, rule.Daddr(p.Family)), rule.Jump(UnservedChain)})}
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

// A refusal is the answer of a dead endpoint to the first packet of a connection: a TCP reset, or an ICMP error by
// whoever finds that the endpoint is gone. The program notes the endpoint in the set "refusing". If the frontend holds
// refusals back, it drops the refusal as well. The client repeats its packet after a second, and reaches another
// endpoint: connection tracking forgets a flow whose only answer is a reset, and the daemon deletes the flows of
// endpoints that it ejects.
//
// The set "held-back" has the clients whose refusal was dropped. The next refusal to such a client passes, so a client
// that all endpoints refuse learns it from its second packet. If the set is full, refusals pass at once.
//
// Several packets of a client can wait while the kernel asks for the neighbor's address. When it gives up after 3 seconds,
// it sends an error for each of them at once. They count as one refusal: errors to clients in the set "just-held-back" are
// dropped, too.

// How long a client is in the set "held-back". It repeats its packet 1 and 3 seconds after the first one. An error about a
// neighbor answers a packet up to 3 seconds late, and the next such error comes more than 3 seconds later.
const (
	heldBackTimeout      = 3 * time.Second
	heldBackErrorTimeout = 8 * time.Second
)

// justHeldBackTimeout is how long a client is in the set "just-held-back": less than the time until its next packet.
const justHeldBackTimeout = 500 * time.Millisecond

// RefusedChain is there if endpoints that refuse are noticed.
const RefusedChain = "refused"

func refusalChain(proto string) string { return "refusal-" + proto }

// lookForRefusals is the rule of the filter chains. Packets of established connections meet its one test. A flow of UDP
// that never becomes assured meets all of them.
func lookForRefusals() rule.Rule { return rule.Rule{rule.IsNotAssured(), rule.Jump(RefusedChain)} }

// refused finds refusals among the packets of connections that are not established. A reset that is the only answer to
// a connection has just ended it: connection tracking calls it dying.
func (p Program) refused() []Chain {
	reset := rule.Rule{rule.IsDeleted(), rule.IsTranslated(), rule.IsReply(), rule.TCPOnly(), rule.IsReset(), rule.Jump(refusalChain("tcp"))}
	icmp := rule.ICMP(p.Family)
	rules := []rule.Rule{reset, {icmp, rule.IsUnanswered(), rule.IsTranslated(), rule.OfTCP(), rule.Jump(refusalChain("icmp"))}}
	if p.IPVS {
		note := suspect(Refusing, rule.Key{rule.ReplySaddr(p.Family), rule.ReplySport()})
		for _, set := range []SetID{IPVSAddresses, NodePortAddresses} {
			rules = append(rules, rule.Rule{rule.IsNotTranslated(), rule.IsReply(), rule.TCPOnly(), rule.IsReset(), rule.In(set, rule.OriginalDaddr(p.Family)), note})
		}
	}
	ofICMP := append(otherErrors(p.Family, icmp), refusal(p.Family, icmp, heldBackErrorTimeout)...)
	return []Chain{
		{Name: refusalChain("tcp"), Rules: refusal(p.Family, rule.IsProtocol(unix.IPPROTO_TCP), heldBackTimeout)},
		{Name: refusalChain("icmp"), Rules: ofICMP},
		{Name: RefusedChain, Rules: rules},
	}
}

// otherErrors leaves out errors that are about the path and not about the endpoint.
func otherErrors(f Family, icmp rule.Statement) []rule.Rule {
	silent := rule.Statement{Exprs: icmp.Exprs} // nft does not list it before a field of ICMP, which implies it
	if f == IPv6 {
		return []rule.Rule{{silent, rule.HeaderByte("icmpv6 type packet-too-big", 0, 2), rule.ReturnNow()}}
	}
	return []rule.Rule{
		{silent, rule.HeaderByte("icmp type redirect", 0, 5), rule.ReturnNow()},
		{silent, rule.HeaderByte("icmp code frag-needed", 1, 4), rule.ReturnNow()},
	}
}

// refusal notes the endpoint, and drops the refusal if the frontend wants that. Each rule names the protocol, because nft
// knows the type of a port in "ct original" only then.
func refusal(f Family, is rule.Statement, timeout time.Duration) []rule.Rule {
	client := rule.Key{rule.OriginalSaddr(f), rule.OriginalSport()}
	hold := []rule.Statement{rule.AddTo(HeldBack, client, timeout), rule.AddTo(JustHeldBack, client, justHeldBackTimeout), rule.Drop()}
	frontend := rule.Key{rule.OriginalDaddr(f), rule.TrackedProtocol(), rule.OriginalDport()}
	return []rule.Rule{
		{is, suspect(Refusing, rule.Key{rule.ReplySaddr(f), rule.ReplySport()})},
		{is, rule.In(JustHeldBack, client...), rule.Drop()},
		{is, rule.In(HeldBack, client...), rule.ReturnNow()},
		append(rule.Rule{is, rule.In(HoldsRefusals, frontend...)}, hold...),
		append(rule.Rule{is, rule.In(NodePortAddresses, frontend[0]), rule.In(HoldsRefusalsNodePorts, frontend[1:]...)}, hold...),
		append(rule.Rule{is, rule.In(RangeHoldsRefusals, frontend...)}, hold...),
	}
}
