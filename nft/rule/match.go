package rule

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// This file has the statements about connections and answers.

// These are bits of the kernel's enum ip_conntrack_status.
const (
	statusSeenReply = 0x2
	statusAssured   = 0x4
	statusConfirmed = 0x8
	StatusDNAT      = 0x20
	statusDying     = 0x200
)

// status matches connections that have a value in some bits of their status.
func status(text string, bits, value uint32) Statement {
	load := &expr.Ct{Register: FirstRegister, Key: expr.CtKeySTATUS}
	return Compare(text, load, Native(bits), expr.CmpOpEq, Native(value))
}

func IsTranslated() Statement    { return status("ct status & dnat == dnat", StatusDNAT, StatusDNAT) }
func IsNotTranslated() Statement { return status("ct status & dnat == 0", StatusDNAT, 0) }

// state matches packets in a state of connection tracking.
func state(text string, bit uint32) Statement {
	load := &expr.Ct{Register: FirstRegister, Key: expr.CtKeySTATE}
	return Compare(text, load, Native(bit), expr.CmpOpNeq, Native(0))
}

// IsNew matches the first packet of a connection.
func IsNew() Statement { return state("ct state new", expr.CtStateBitNEW) }

// IsInvalid matches packets that connection tracking cannot place in a connection. They have none, so no status either.
func IsInvalid() Statement { return state("ct state invalid", expr.CtStateBitINVALID) }

func IsNewOrInvalid() Statement {
	return state("ct state invalid,new", expr.CtStateBitINVALID|expr.CtStateBitNEW)
}

// IsRelated matches errors about a connection.
func IsRelated() Statement { return state("ct state related", expr.CtStateBitRELATED) }

// IsDeleted matches packets whose connection has been deleted since they belong to it.
func IsDeleted() Statement {
	return status("ct status & dying == dying", statusDying, statusDying)
}

// IsRepeated matches packets of connections that an earlier packet began.
func IsRepeated() Statement {
	return status("ct status & confirmed == confirmed", statusConfirmed, statusConfirmed)
}

func IsNotAssured() Statement { return status("ct status & assured == 0", statusAssured, 0) }

// IsReply matches packets from the endpoint to the client.
func IsReply() Statement {
	return Compare("ct direction reply", &expr.Ct{Register: FirstRegister, Key: expr.CtKeyDIRECTION},
		nil, expr.CmpOpEq, []byte{1}) // IP_CT_DIR_REPLY
}

// IsReset matches TCP packets that refuse a connection. A reset has the flag ACK if it answers a first packet, which has none
// itself (RFC 9293, 3.10.7.1). One without the flag answers a packet of a connection that the endpoint does not know.
func IsReset() Statement {
	const flags = 0x4 | 0x10
	return headerByte("tcp flags & (rst | ack) == rst | ack", tcpFlags, []byte{flags}, flags)
}

// IsNotSYN matches TCP packets that begin no connection.
func IsNotSYN() Statement {
	const syn = 0x2
	return headerByte("tcp flags ! syn", tcpFlags, []byte{syn}, 0)
}

// NotToThisNode matches packets that leave for another host or for a pod.
func NotToThisNode() Statement {
	return isLocal("fib daddr type != local", &expr.Fib{FlagDADDR: true}, expr.CmpOpNeq)
}

// GoesBack matches packets that leave by the device by which they arrived (at the hook forward: Linux 5.19).
func GoesBack() Statement {
	return Compare("fib daddr . mark . iif oif exists", &expr.Fib{
		Register: FirstRegister, ResultOIF: true, FlagDADDR: true, FlagMARK: true, FlagIIF: true, FlagPRESENT: true,
	}, nil, expr.CmpOpEq, Native(1))
}

// CameFromRoute matches packets whose source is routed back through the device by which they arrived (at the hook forward: Linux 5.19).
func CameFromRoute() Statement {
	return Compare("fib saddr . mark . iif oif exists", &expr.Fib{
		Register: FirstRegister, ResultOIF: true, FlagSADDR: true, FlagMARK: true, FlagIIF: true, FlagPRESENT: true,
	}, nil, expr.CmpOpEq, Native(1))
}

// HasMorePackets matches connections with more than so many packets in both directions together. The kernel counts those of connections
// that begin after it has the rule (net.netfilter.nf_conntrack_acct).
func HasMorePackets(n uint32) Statement {
	return Statement{Text: fmt.Sprintf("ct packets > %d", n), Exprs: []expr.Any{
		&expr.Ct{Key: expr.CtKeyPKTS, Register: FirstRegister},
		&expr.Byteorder{SourceRegister: FirstRegister, DestRegister: FirstRegister, Op: expr.ByteorderHton, Len: 8, Size: 8},
		&expr.Cmp{Op: expr.CmpOpGt, Register: FirstRegister, Data: binary.BigEndian.AppendUint64(nil, uint64(n))},
	}}
}

// MetaIIFKind and metaOIFKind are NFT_META_IIFKIND and NFT_META_OIFKIND, which x/sys does not have.
const (
	MetaIIFKind expr.MetaKey = 26
	metaOIFKind expr.MetaKey = 27
)

// NotBy matches packets that did not arrive by a device of a kind, and NotTo those that do not leave by one.
func NotBy(kind string) Statement { return kindIsNot("iifkind", MetaIIFKind, kind) }
func NotTo(kind string) Statement { return kindIsNot("oifkind", metaOIFKind, kind) }

func kindIsNot(field string, key expr.MetaKey, kind string) Statement {
	padded := append([]byte(kind), make([]byte, unix.IFNAMSIZ-len(kind))...)
	return Compare(fmt.Sprintf("meta %s != %q", field, kind), &expr.Meta{Key: key, Register: FirstRegister}, nil, expr.CmpOpNeq, padded)
}

// TCPOnly matches TCP packets. nft does not list it before a field of TCP, which implies it.
func TCPOnly() Statement { return Statement{Exprs: IsProtocol(unix.IPPROTO_TCP).Exprs} }

func ICMP(f Family) Statement {
	return protocolIs(Choose(f, "icmp", "ipv6-icmp"), Choose[uint8](f, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6))
}

// IsUnanswered matches packets of connections that never had an answer.
func IsUnanswered() Statement { return status("ct status & seen-reply == 0", statusSeenReply, 0) }

// OfTCP matches packets of TCP connections, and errors about them.
func OfTCP() Statement {
	f := TrackedProtocol()
	return Compare(f.text+" tcp", f.load(FirstRegister)[0], nil, expr.CmpOpEq, []byte{unix.IPPROTO_TCP})
}

// HeaderByte matches a byte of the header of the transport protocol, or of ICMP.
func HeaderByte(text string, offset uint32, value byte) Statement {
	return headerByte(text, offset, nil, value)
}

// tcpFlags is where the header of TCP has its flags.
const tcpFlags = 13

// headerByte matches a byte after a mask is applied; nil: no mask.
func headerByte(text string, offset uint32, mask []byte, value byte) Statement {
	load := &expr.Payload{DestRegister: FirstRegister, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1}
	return Compare(text, load, mask, expr.CmpOpEq, []byte{value})
}

// AddTo adds a key to a set. If the set is full, the rule ends.
func AddTo(set Set, k Key, timeout time.Duration) Statement {
	return Statement{
		Text: fmt.Sprintf("add @%s { %s timeout %s }", set.Name(), k, DurationText(timeout)),
		Exprs: append(k.load(), &expr.Dynset{
			SrcRegKey: FirstRegister, SetName: set.Name(), Operation: uint32(unix.NFT_DYNSET_OP_ADD), Timeout: timeout,
		}),
	}
}
