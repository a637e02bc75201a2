package nft

import (
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A refusal is the answer of a dead endpoint to the first packet of a connection: a TCP reset, or an ICMP error by
// whoever finds that the endpoint is gone. The program notes the endpoint in the set "refusing". If the frontend holds
// refusals back, it drops the refusal as well. The client repeats its packet after a second, and reaches another
// endpoint: connection tracking forgets a flow whose only answer is a reset, and the daemon deletes the flows of
// endpoints that it ejects.
//
// The set "held-back" has the clients whose refusal was dropped. The next refusal to such a client passes, so a client
// that all endpoints refuse learns it from its second packet. If the set is full, refusals pass at once.

// heldBackTimeout is how long a client is in the set. It repeats its packet after a second.
const heldBackTimeout = 3 * time.Second

// HeldBackLimit is the size of the set "held-back".
const HeldBackLimit = 65536

const refusedChain = "refused"

func refusalChain(proto string) string { return "refusal-" + proto }

// lookForRefusals is the rule of the filter chains. Packets of established connections meet its one test. A flow of UDP
// that never becomes assured meets all of them.
func (p program) lookForRefusals() rule { return rule{isNotAssured(), jump(refusedChain)} }

// refused finds refusals among the packets of connections that are not established. A reset that is the only answer to
// a connection has just ended it: connection tracking calls it dying.
func (p program) refused() []chainDef {
	reset := rule{isDeleted(), isTranslated(), isReply(), tcpOnly(), isReset(), jump(refusalChain("tcp"))}
	icmp := p.icmp()
	rules := []rule{reset, {icmp, isUnanswered(), isTranslated(), ofTCP(), jump(refusalChain("icmp"))}}
	if p.ipvs {
		note := p.suspect(setRefusing, key{p.replySaddr(), replySport()})
		for _, set := range []string{setIPVSAddresses, setNodePortAddresses} {
			rules = append(rules, rule{isNotTranslated(), isReply(), tcpOnly(), isReset(), in(set, p.originalDaddr()), note})
		}
	}
	ofICMP := append(p.otherErrors(icmp), p.refusal(icmp)...)
	return []chainDef{
		{name: refusalChain("tcp"), rules: p.refusal(isProtocol(unix.IPPROTO_TCP))},
		{name: refusalChain("icmp"), rules: ofICMP},
		{name: refusedChain, rules: rules},
	}
}

// otherErrors leaves out errors that are about the path and not about the endpoint.
func (p program) otherErrors(icmp statement) []rule {
	field := func(text string, offset uint32, value byte) statement {
		load := &expr.Payload{DestRegister: firstRegister, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1}
		return compare(text, load, nil, expr.CmpOpEq, []byte{value})
	}
	silent := statement{exprs: icmp.exprs} // nft does not list it before a field of ICMP, which implies it
	if p.family == IPv6 {
		return []rule{{silent, field("icmpv6 type packet-too-big", 0, 2), returnNow()}}
	}
	return []rule{
		{silent, field("icmp type redirect", 0, 5), returnNow()},
		{silent, field("icmp code frag-needed", 1, 4), returnNow()},
	}
}

// refusal notes the endpoint, and drops the refusal if the frontend wants that. Each rule names the protocol, because nft
// knows the type of a port in "ct original" only then.
func (p program) refusal(is statement) []rule {
	client := key{p.originalSaddr(), originalSport()}
	hold := []statement{addTo(setHeldBack, client, heldBackTimeout), drop()}
	frontend := key{p.originalDaddr(), trackedProtocol(), originalDport()}
	return []rule{
		{is, p.suspect(setRefusing, key{p.replySaddr(), replySport()})},
		{is, in(setHeldBack, client...), returnNow()},
		append(rule{is, in(setHoldsRefusals, frontend...)}, hold...),
		append(rule{is, in(setNodePortAddresses, frontend[0]), in(setHoldsRefusalsNodePorts, frontend[1:]...)}, hold...),
	}
}

func (p program) icmp() statement {
	if p.family == IPv6 {
		return protocolIs("ipv6-icmp", unix.IPPROTO_ICMPV6)
	}
	return protocolIs("icmp", unix.IPPROTO_ICMP)
}

// isUnanswered matches packets of connections that never had an answer.
func isUnanswered() statement {
	const seenReply = 0x2
	return compare("ct status & seen-reply == 0", &expr.Ct{Register: firstRegister, Key: expr.CtKeySTATUS},
		native(seenReply), expr.CmpOpEq, native(0))
}

// ofTCP matches packets of TCP connections, and errors about them.
func ofTCP() statement {
	f := trackedProtocol()
	return compare(f.text+" tcp", f.load(firstRegister)[0], nil, expr.CmpOpEq, []byte{unix.IPPROTO_TCP})
}

// addTo adds a key to a set. If the set is full, the rule ends.
func addTo(set string, k key, timeout time.Duration) statement {
	return statement{
		text: fmt.Sprintf("add @%s { %s timeout %s }", set, k, duration(timeout)),
		exprs: append(k.load(), &expr.Dynset{
			SrcRegKey: firstRegister, SetName: set, Operation: uint32(unix.NFT_DYNSET_OP_ADD), Timeout: timeout,
		}),
	}
}
