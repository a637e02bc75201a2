package nft

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// statement is a part of a rule: its text in the form that nft 1.0.6 lists, and its expressions. A statement that nft
// does not list has no text.
type statement struct {
	text  string
	exprs []expr.Any
	// protocols is set if the statement looks up the anonymous set of the three protocols, which is created together
	// with the rule.
	protocols bool
}

// rule is a list of statements. The kernel evaluates them in order, and stops at the first one that does not match.
type rule []statement

func (r rule) String() string {
	parts := make([]string, 0, len(r))
	for _, s := range r {
		if s.text != "" {
			parts = append(parts, s.text)
		}
	}
	return strings.Join(parts, " ")
}

func (r rule) exprs() []expr.Any {
	var out []expr.Any
	for _, s := range r {
		out = append(out, s.exprs...)
	}
	return out
}

func (r rule) usesProtocols() bool {
	for _, s := range r {
		if s.protocols {
			return true
		}
	}
	return false
}

func (k key) lookup(set string, dest bool, destReg uint32, invert bool) []expr.Any {
	return append(k.load(), &expr.Lookup{
		SourceRegister: firstRegister, SetName: set, IsDestRegSet: dest, DestRegister: destReg, Invert: invert,
	})
}

// in matches when the key is an element of a set.
func in(set string, k ...field) statement {
	return statement{text: key(k).String() + " @" + set, exprs: key(k).lookup(set, false, 0, false)}
}

// notIn matches when the key is not an element of a set.
func notIn(set string, k ...field) statement {
	return statement{text: key(k).String() + " != @" + set, exprs: key(k).lookup(set, false, 0, true)}
}

// setScratch sets the scratch number to the map's data for the key. If the map does not have the key, the rule ends.
func setScratch(mapName string, k ...field) statement {
	return statement{
		text:  fmt.Sprintf("meta priority set %s map @%s", key(k), mapName),
		exprs: append(key(k).lookup(mapName, true, firstRegister, false), storeScratch()),
	}
}

// setScratchTo sets the scratch number to a value that is computed from it.
func setScratchTo(f field) statement {
	return statement{text: "meta priority set " + f.text, exprs: append(f.load(firstRegister), storeScratch())}
}

// clearScratch sets the priority field to the kernel's default.
func clearScratch() statement {
	return statement{text: "meta priority set none", exprs: []expr.Any{
		&expr.Immediate{Register: firstRegister, Data: make([]byte, 4)}, storeScratch(),
	}}
}

func storeScratch() expr.Any {
	return &expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: firstRegister}
}

// scratchHas matches when at least one of the bits is set in the scratch number.
func scratchHas(bits uint32) statement { return testScratch(bits, "!=", expr.CmpOpNeq) }

// scratchLacks matches when none of the bits is set in the scratch number.
func scratchLacks(bits uint32) statement { return testScratch(bits, "==", expr.CmpOpEq) }

func testScratch(bits uint32, text string, op expr.CmpOp) statement {
	f := masked(bits)
	return statement{text: f.text + " " + text + " none", exprs: append(f.load(firstRegister),
		&expr.Cmp{Op: op, Register: firstRegister, Data: make([]byte, 4)})}
}

// dispatchTo goes to the chain that a verdict map has for the key.
func dispatchTo(mapName string, k ...field) statement {
	return statement{
		text:  fmt.Sprintf("%s vmap @%s", key(k), mapName),
		exprs: key(k).lookup(mapName, true, unix.NFT_REG_VERDICT, false),
	}
}

// dnat translates to the address and port that a map has for the key. The statement names the protocols, because nft
// refuses a port in a DNAT map otherwise.
func (p program) dnat(mapName string, k ...field) statement {
	exprs := append(protocolsLookup(), key(k).lookup(mapName, true, firstRegister, false)...)
	return statement{
		text: fmt.Sprintf("meta l4proto { tcp, udp, sctp } dnat %s to %s map @%s", p.family, key(k), mapName),
		exprs: append(exprs, &expr.NAT{
			Type: expr.NATTypeDestNAT, Family: uint32(p.family),
			RegAddrMin: firstRegister, RegProtoMin: firstRegister + uint32(p.family.addrLen())/4,
		}),
		protocols: true,
	}
}

// protocolsSet is the name of the anonymous set of a rule. The kernel replaces %d by a number.
const protocolsSet = "__set%d"

func protocolsLookup() []expr.Any {
	return append(key{l4proto()}.load(),
		&expr.Lookup{SourceRegister: firstRegister, SetName: protocolsSet, SetID: protocolsSetID})
}

// affinityEntry adds or refreshes ("update") or removes ("delete") the client's entry in the affinity map. An update of
// an existing entry renews the timeout and keeps the data, so the client stays with its endpoint.
func (p program) affinityEntry(op string, timeout time.Duration) statement {
	client := p.clientKey(dynsetHashRegister)
	operation, suffix := uint32(unix.NFT_DYNSET_OP_UPDATE), " timeout "+duration(timeout)
	if op == "delete" {
		operation, suffix, timeout = dynsetDelete, "", 0
	}
	dataReg := firstRegister + 4 // as in nft: the data are in the next 128-bit register
	return statement{
		text: fmt.Sprintf("%s @%s { %s%s : meta priority }", op, mapAffinity, client, suffix),
		exprs: append(append(client.load(), scratch().load(dataReg)...), &expr.Dynset{
			SrcRegKey: firstRegister, SrcRegData: dataReg, SetName: mapAffinity, Operation: operation, Timeout: timeout,
		}),
	}
}

// dynsetDelete is NFT_DYNSET_OP_DELETE (kernel 5.10), which x/sys does not have.
const dynsetDelete = 2

// compare applies a mask to a field and compares the result with a constant; nil: no mask.
func compare(text string, load expr.Any, mask []byte, op expr.CmpOp, value []byte) statement {
	exprs := []expr.Any{load}
	if mask != nil {
		exprs = append(exprs, &expr.Bitwise{
			SourceRegister: firstRegister, DestRegister: firstRegister, Len: uint32(len(mask)),
			Mask: mask, Xor: make([]byte, len(mask)),
		})
	}
	return statement{text: text, exprs: append(exprs, &expr.Cmp{Op: op, Register: firstRegister, Data: value})}
}

func native(v uint32) []byte { return binaryutil.NativeEndian.PutUint32(v) }

// isNew matches the first packet of a connection.
func isNew() statement {
	return compare("ct state new", &expr.Ct{Register: firstRegister, Key: expr.CtKeySTATE},
		native(expr.CtStateBitNEW), expr.CmpOpNeq, native(0))
}

// statusDNAT is IPS_DST_NAT of the kernel's enum ip_conntrack_status.
const statusDNAT = 0x20

func isTranslated() statement {
	return compare("ct status & dnat == dnat", &expr.Ct{Register: firstRegister, Key: expr.CtKeySTATUS},
		native(statusDNAT), expr.CmpOpEq, native(statusDNAT))
}

func isNotTranslated() statement {
	return compare("ct status & dnat == 0", &expr.Ct{Register: firstRegister, Key: expr.CtKeySTATUS},
		native(statusDNAT), expr.CmpOpEq, native(0))
}

// fromThisNode matches packets that the node itself sends.
func fromThisNode() statement {
	return compare("fib saddr type local", &expr.Fib{Register: firstRegister, FlagSADDR: true, ResultADDRTYPE: true},
		nil, expr.CmpOpEq, native(unix.RTN_LOCAL))
}

// toLoopback matches the loopback range of IPv4, by the first byte of the destination.
func toLoopback() statement {
	load := &expr.Payload{
		DestRegister: firstRegister, Base: expr.PayloadBaseNetworkHeader,
		Offset: program{family: IPv4}.daddrOffset(), Len: 1,
	}
	return compare("ip daddr 127.0.0.0/8", load, nil, expr.CmpOpEq, []byte{127})
}

func isProtocol(proto uint8) statement { return protocolIs(printProto([]byte{proto}), proto) }

func protocolIs(name string, proto uint8) statement {
	load := &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: firstRegister}
	return compare("meta l4proto "+name, load, nil, expr.CmpOpEq, []byte{proto})
}

// interfaceName matches the incoming interface: by its whole name, or by a prefix if the name ends in "*".
func interfaceName(name string, invert bool) statement {
	op, sign := expr.CmpOpEq, ""
	if invert {
		op, sign = expr.CmpOpNeq, "!= "
	}
	value := []byte(strings.TrimSuffix(name, "*"))
	if !strings.HasSuffix(name, "*") {
		value = append(value, make([]byte, unix.IFNAMSIZ-len(value))...)
	}
	load := &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: firstRegister}
	return compare(fmt.Sprintf("iifname %s%q", sign, name), load, nil, op, value)
}

func verdict(kind expr.VerdictKind, text string) statement {
	return statement{text: text, exprs: []expr.Any{&expr.Verdict{Kind: kind}}}
}

func returnNow() statement { return verdict(expr.VerdictReturn, "return") }
func drop() statement      { return verdict(expr.VerdictDrop, "drop") }
func accept() statement    { return verdict(expr.VerdictAccept, "accept") }

func jump(chain string) statement {
	return statement{text: "jump " + chain, exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}}
}

func goTo(chain string) statement {
	return statement{text: "goto " + chain, exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}}
}

// resetTCP answers with a reset. The kernel limits the rate of ICMP errors (icmp_ratelimit), so with these every second
// attempt would time out.
func resetTCP() statement {
	return statement{text: "reject with tcp reset", exprs: []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}}
}

// reject answers "port unreachable" (ICMP code 3, ICMPv6 code 4).
func (p program) reject() statement {
	code := uint8(3)
	if p.family == IPv6 {
		code = 4
	}
	return statement{text: "reject", exprs: []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}}
}

// masquerade replaces the source by an address of the node and a random port. Without fully-random, two clients can
// race for the same port, and one of them loses its packet.
func masquerade() statement {
	return statement{text: "masquerade fully-random", exprs: []expr.Any{&expr.Masq{FullyRandom: true}}}
}

// duration prints whole seconds as nft does: 1d2h3m4s, without parts that are zero.
func duration(d time.Duration) string {
	rest := int64(d / time.Second)
	var b strings.Builder
	for _, unit := range []struct {
		seconds int64
		letter  byte
	}{{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}} {
		if n := rest / unit.seconds; n > 0 {
			fmt.Fprintf(&b, "%d%c", n, unit.letter)
			rest -= n * unit.seconds
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}
