package rule

import (
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// This file has the statements about connections and answers.

// These are bits of the kernel's enum ip_conntrack_status.
const (
	statusAssured   = 0x4
	statusConfirmed = 0x8
	statusDying     = 0x200
)

// IsRelated matches errors about a connection.
func IsRelated() Statement {
	return Compare("ct state related", &expr.Ct{Register: FirstRegister, Key: expr.CtKeySTATE},
		Native(expr.CtStateBitRELATED), expr.CmpOpNeq, Native(0))
}

// IsDeleted matches packets whose connection has been deleted since they belong to it.
func IsDeleted() Statement {
	return Compare("ct status & dying == dying", &expr.Ct{Register: FirstRegister, Key: expr.CtKeySTATUS},
		Native(statusDying), expr.CmpOpEq, Native(statusDying))
}

// IsRepeated matches packets of connections that an earlier packet began.
func IsRepeated() Statement {
	return Compare("ct status & confirmed == confirmed", &expr.Ct{Register: FirstRegister, Key: expr.CtKeySTATUS},
		Native(statusConfirmed), expr.CmpOpEq, Native(statusConfirmed))
}

func IsNotAssured() Statement {
	return Compare("ct status & assured == 0", &expr.Ct{Register: FirstRegister, Key: expr.CtKeySTATUS},
		Native(statusAssured), expr.CmpOpEq, Native(0))
}

// IsReply matches packets from the endpoint to the client.
func IsReply() Statement {
	return Compare("ct direction reply", &expr.Ct{Register: FirstRegister, Key: expr.CtKeyDIRECTION},
		nil, expr.CmpOpEq, []byte{1}) // IP_CT_DIR_REPLY
}

// IsReset matches TCP packets that refuse a connection. A reset has the flag ACK if it answers a first packet, which has none
// itself (RFC 9293, 3.10.7.1). One without the flag answers a packet of a connection that the endpoint does not know.
func IsReset() Statement {
	const flagsOffset, flags = 13, 0x4 | 0x10
	return Compare("tcp flags & (rst | ack) == rst | ack",
		&expr.Payload{DestRegister: FirstRegister, Base: expr.PayloadBaseTransportHeader, Offset: flagsOffset, Len: 1},
		[]byte{flags}, expr.CmpOpEq, []byte{flags})
}

// IsNotSYN matches TCP packets that begin no connection.
func IsNotSYN() Statement {
	const flagsOffset, syn = 13, 0x2
	return Compare("tcp flags ! syn",
		&expr.Payload{DestRegister: FirstRegister, Base: expr.PayloadBaseTransportHeader, Offset: flagsOffset, Len: 1},
		[]byte{syn}, expr.CmpOpEq, []byte{0})
}

// NotToThisNode matches packets that leave for another host or for a pod.
func NotToThisNode() Statement {
	return Compare("fib daddr type != local",
		&expr.Fib{Register: FirstRegister, FlagDADDR: true, ResultADDRTYPE: true},
		nil, expr.CmpOpNeq, Native(unix.RTN_LOCAL))
}

// TCPOnly matches TCP packets. nft does not list it before a field of TCP, which implies it.
func TCPOnly() Statement { return Statement{Exprs: IsProtocol(unix.IPPROTO_TCP).Exprs} }

func ICMP(f Family) Statement {
	if f == IPv6 {
		return protocolIs("ipv6-icmp", unix.IPPROTO_ICMPV6)
	}
	return protocolIs("icmp", unix.IPPROTO_ICMP)
}

// IsUnanswered matches packets of connections that never had an answer.
func IsUnanswered() Statement {
	const seenReply = 0x2
	return Compare("ct status & seen-reply == 0", &expr.Ct{Register: FirstRegister, Key: expr.CtKeySTATUS},
		Native(seenReply), expr.CmpOpEq, Native(0))
}

// OfTCP matches packets of TCP connections, and errors about them.
func OfTCP() Statement {
	f := TrackedProtocol()
	return Compare(f.text+" tcp", f.load(FirstRegister)[0], nil, expr.CmpOpEq, []byte{unix.IPPROTO_TCP})
}

// HeaderByte matches a byte of the header of the transport protocol, or of ICMP.
func HeaderByte(text string, offset uint32, value byte) Statement {
	load := &expr.Payload{DestRegister: FirstRegister, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1}
	return Compare(text, load, nil, expr.CmpOpEq, []byte{value})
}

// AddTo adds a key to a set. If the set is full, the rule ends.
func AddTo(set string, k Key, timeout time.Duration) Statement {
	return Statement{
		Text: fmt.Sprintf("add @%s { %s timeout %s }", set, k, DurationText(timeout)),
		Exprs: append(k.load(), &expr.Dynset{
			SrcRegKey: FirstRegister, SetName: set, Operation: uint32(unix.NFT_DYNSET_OP_ADD), Timeout: timeout,
		}),
	}
}
