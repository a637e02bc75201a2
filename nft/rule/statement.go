package rule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// Statement is a part of a rule: its text in the form that nft 1.0.6 lists, and its expressions. A statement that nft
// does not list has no text.
type Statement struct {
	Text  string
	Exprs []expr.Any
	// protocols is set if the statement looks up the anonymous set of the three protocols, which is created together
	// with the rule.
	protocols bool
}

// Rule is a list of statements. The kernel evaluates them in order, and stops at the first one that does not match.
type Rule []Statement

func (r Rule) String() string {
	parts := make([]string, 0, len(r))
	for _, s := range r {
		if s.Text != "" {
			parts = append(parts, s.Text)
		}
	}
	return strings.Join(parts, " ")
}

func (r Rule) Exprs() []expr.Any {
	var out []expr.Any
	for _, s := range r {
		out = append(out, s.Exprs...)
	}
	return out
}

func (r Rule) UsesProtocols() bool {
	return slices.ContainsFunc(r, func(s Statement) bool { return s.protocols })
}

// AddsFlow reports whether the rule moves connections to a flowtable.
func (r Rule) AddsFlow() bool {
	return slices.ContainsFunc(r.Exprs(), func(e expr.Any) bool { _, is := e.(*expr.FlowOffload); return is })
}

// Set is a set or map of the program. A rule knows only its name.
type Set interface{ Name() string }

func (k Key) lookup(set Set, dest bool, destReg uint32, invert bool) []expr.Any {
	return append(k.load(), &expr.Lookup{
		SourceRegister: FirstRegister, SetName: set.Name(), IsDestRegSet: dest, DestRegister: destReg, Invert: invert,
	})
}

// In matches when the key is an element of a set.
func In(set Set, k ...Field) Statement {
	return Statement{Text: Key(k).String() + " @" + set.Name(), Exprs: Key(k).lookup(set, false, 0, false)}
}

// NotIn matches when the key is not an element of a set.
func NotIn(set Set, k ...Field) Statement {
	return Statement{Text: Key(k).String() + " != @" + set.Name(), Exprs: Key(k).lookup(set, false, 0, true)}
}

// SetScratch sets the scratch number to the map's data for the key. If the map does not have the key, the rule ends.
func SetScratch(m Set, k ...Field) Statement {
	return Statement{
		Text:  fmt.Sprintf("meta priority set %s map @%s", Key(k), m.Name()),
		Exprs: append(Key(k).lookup(m, true, FirstRegister, false), storeScratch()),
	}
}

// SetScratchTo sets the scratch number to a value that is computed from it.
func SetScratchTo(f Field) Statement {
	return Statement{Text: "meta priority set " + f.text, Exprs: append(f.load(FirstRegister), storeScratch())}
}

// ClearScratch sets the priority field to the kernel's default.
func ClearScratch() Statement {
	return Statement{Text: "meta priority set none", Exprs: []expr.Any{
		&expr.Immediate{Register: FirstRegister, Data: make([]byte, 4)}, storeScratch(),
	}}
}

func storeScratch() expr.Any {
	return &expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: FirstRegister}
}

// ScratchHas matches when at least one of the bits is set in the scratch number.
func ScratchHas(bits uint32) Statement { return testScratch(bits, "!=", expr.CmpOpNeq) }

// ScratchLacks matches when none of the bits is set in the scratch number.
func ScratchLacks(bits uint32) Statement { return testScratch(bits, "==", expr.CmpOpEq) }

func testScratch(bits uint32, text string, op expr.CmpOp) Statement {
	f := Masked(bits)
	return Statement{Text: f.text + " " + text + " none", Exprs: append(f.load(FirstRegister),
		&expr.Cmp{Op: op, Register: FirstRegister, Data: make([]byte, 4)})}
}

// DispatchTo goes to the chain that a verdict map has for the key.
func DispatchTo(m Set, k ...Field) Statement {
	return Statement{
		Text:  fmt.Sprintf("%s vmap @%s", Key(k), m.Name()),
		Exprs: Key(k).lookup(m, true, unix.NFT_REG_VERDICT, false),
	}
}

// DNAT translates to the address and port that a map has for the key. The statement names the protocols, because nft
// refuses a port in a DNAT map otherwise.
func DNAT(f Family, m Set, k ...Field) Statement {
	exprs := append(protocolsLookup(), Key(k).lookup(m, true, FirstRegister, false)...)
	return Statement{
		Text:      fmt.Sprintf("meta l4proto { tcp, udp, sctp } dnat %s to %s map @%s", f, Key(k), m.Name()),
		Exprs:     append(exprs, translate(f, expr.NATTypeDestNAT, portBehind(f))),
		protocols: true,
	}
}

// translate gives the packet the address in the first register, and the port in another one; 0: it keeps its port.
func translate(f Family, kind expr.NATType, port uint32) *expr.NAT {
	return &expr.NAT{Type: kind, Family: uint32(f), RegAddrMin: FirstRegister, RegProtoMin: port}
}

// portBehind is the register behind an address in the first register.
func portBehind(f Family) uint32 { return FirstRegister + uint32(f.AddrLen())/4 }

// SNAT replaces the source by the address and port that a map has for the key. The key has a port of one protocol.
func SNAT(f Family, m Set, k ...Field) Statement {
	return Statement{
		Text:  fmt.Sprintf("snat %s to %s map @%s", f, Key(k), m.Name()),
		Exprs: append(Key(k).lookup(m, true, FirstRegister, false), translate(f, expr.NATTypeSourceNAT, portBehind(f))),
	}
}

// DNATAddress translates to the address that a map has for the key. The port stays.
func DNATAddress(f Family, m Set, k ...Field) Statement {
	return Statement{
		Text:  fmt.Sprintf("dnat to %s map @%s", Key(k), m.Name()),
		Exprs: append(Key(k).lookup(m, true, FirstRegister, false), translate(f, expr.NATTypeDestNAT, 0)),
	}
}

// protocolsSetID takes the place of the number of the anonymous set until the rule is written.
const protocolsSetID = ^uint32(0)

// ProtocolsSet is the name of the anonymous set of a rule. The kernel replaces %d by a number.
const ProtocolsSet = "__set%d"

func protocolsLookup() []expr.Any {
	return append(Key{L4Proto()}.load(),
		&expr.Lookup{SourceRegister: FirstRegister, SetName: ProtocolsSet, SetID: protocolsSetID})
}

// UpdateMap adds or refreshes an entry of a map ("update"), or removes it ("delete"). An update of an entry that exists renews
// the timeout and keeps the data.
func UpdateMap(op string, m Set, k Key, data Field, timeout time.Duration) Statement {
	operation, suffix := uint32(unix.NFT_DYNSET_OP_UPDATE), " timeout "+DurationText(timeout)
	if op == "delete" {
		operation, suffix, timeout = dynsetDelete, "", 0
	}
	dataReg := FirstRegister + 4 // as in nft: the data are in the next 128-bit register
	return Statement{
		Text: fmt.Sprintf("%s @%s { %s%s : %s }", op, m.Name(), k, suffix, data.text),
		Exprs: append(append(k.load(), data.load(dataReg)...), &expr.Dynset{
			SrcRegKey: FirstRegister, SrcRegData: dataReg, SetName: m.Name(), Operation: operation, Timeout: timeout,
		}),
	}
}

// dynsetDelete is NFT_DYNSET_OP_DELETE (kernel 5.10), which x/sys does not have.
const dynsetDelete = 2

// Compare applies a mask to a field and compares the result with a constant; nil: no mask.
func Compare(text string, load expr.Any, mask []byte, op expr.CmpOp, value []byte) Statement {
	exprs := []expr.Any{load}
	if mask != nil {
		exprs = append(exprs, &expr.Bitwise{
			SourceRegister: FirstRegister, DestRegister: FirstRegister, Len: uint32(len(mask)),
			Mask: mask, Xor: make([]byte, len(mask)),
		})
	}
	return Statement{Text: text, Exprs: append(exprs, &expr.Cmp{Op: op, Register: FirstRegister, Data: value})}
}

func Native(v uint32) []byte { return binaryutil.NativeEndian.PutUint32(v) }

// FromThisNode matches packets that the node itself sends.
func FromThisNode() Statement {
	return isLocal("fib saddr type local", &expr.Fib{FlagSADDR: true}, expr.CmpOpEq)
}

// NotFromThisNode matches packets of others, which the node forwards.
func NotFromThisNode() Statement {
	return isLocal("fib saddr type != local", &expr.Fib{FlagSADDR: true}, expr.CmpOpNeq)
}

// isLocal compares the type of an address with that of the addresses of this node.
func isLocal(text string, of *expr.Fib, op expr.CmpOp) Statement {
	of.Register, of.ResultADDRTYPE = FirstRegister, true
	return Compare(text, of, nil, op, Native(unix.RTN_LOCAL))
}

// ToLoopback matches the loopback range of IPv4, by the first byte of the destination.
func ToLoopback() Statement {
	load := &expr.Payload{
		DestRegister: FirstRegister, Base: expr.PayloadBaseNetworkHeader,
		Offset: DestinationOffset(serviceport.IPv4), Len: 1,
	}
	return Compare("ip daddr 127.0.0.0/8", load, nil, expr.CmpOpEq, []byte{127})
}

func IsProtocol(proto uint8) Statement { return protocolIs(ProtocolName(proto), proto) }

func protocolIs(name string, proto uint8) Statement {
	load := &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: FirstRegister}
	return Compare("meta l4proto "+name, load, nil, expr.CmpOpEq, []byte{proto})
}

// InterfaceName matches the incoming interface: by its whole name, or by a prefix if the name ends in "*".
func InterfaceName(name string, invert bool) Statement {
	op, sign := expr.CmpOpEq, ""
	if invert {
		op, sign = expr.CmpOpNeq, "!= "
	}
	value := []byte(strings.TrimSuffix(name, "*"))
	if !strings.HasSuffix(name, "*") {
		value = append(value, make([]byte, unix.IFNAMSIZ-len(value))...)
	}
	load := &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: FirstRegister}
	return Compare(fmt.Sprintf("iifname %s%q", sign, name), load, nil, op, value)
}

func verdict(kind expr.VerdictKind, text string) Statement {
	return Statement{Text: text, Exprs: []expr.Any{&expr.Verdict{Kind: kind}}}
}

func ReturnNow() Statement { return verdict(expr.VerdictReturn, "return") }
func Drop() Statement      { return verdict(expr.VerdictDrop, "drop") }
func Accept() Statement    { return verdict(expr.VerdictAccept, "accept") }

func Jump(chain string) Statement {
	return Statement{Text: "jump " + chain, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}}
}

func GoTo(chain string) Statement {
	return Statement{Text: "goto " + chain, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}}
}

// ResetTCP answers with a reset. The kernel limits the rate of ICMP errors (icmp_ratelimit), so with these every second
// attempt would time out.
func ResetTCP() Statement {
	return Statement{Text: "reject with tcp reset", Exprs: []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}}
}

// Reject answers "port unreachable" (ICMP code 3, ICMPv6 code 4).
func Reject(f Family) Statement {
	refusal := &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: Choose[uint8](f, 3, 4)}
	return Statement{Text: "reject", Exprs: []expr.Any{refusal}}
}

// Masquerade replaces the source by an address of the node and a random port. Without fully-random, two clients can
// race for the same port, and one of them loses its packet.
func Masquerade() Statement {
	return Statement{Text: "masquerade fully-random", Exprs: []expr.Any{&expr.Masq{FullyRandom: true}}}
}

// AddFlow moves a connection to a flowtable, if it is an established one of TCP, or one of UDP.
func AddFlow(flowtable string) Statement {
	return Statement{Text: "flow add @" + flowtable, Exprs: []expr.Any{&expr.FlowOffload{Name: flowtable}}}
}

// DurationText prints whole milliseconds as nft does: 1d2h3m4s500ms, without parts that are zero.
func DurationText(d time.Duration) string {
	var b strings.Builder
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / unit.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			d -= n * unit.size
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}

// portRegister holds a target port. Neither a key nor an address reaches it.
const portRegister = FirstRegister + 4

// DNATToPort translates to the address of a slot and to a target port.
func DNATToPort(f Family, slotMap Set, slot Key, portMap Set, port Field) Statement {
	exprs := append(protocolsLookup(), slot.lookup(slotMap, true, FirstRegister, false)...)
	exprs = append(exprs, port.load(portRegister)...)
	exprs = append(exprs, &expr.Lookup{
		SourceRegister: portRegister, SetName: portMap.Name(), IsDestRegSet: true, DestRegister: portRegister,
	}, translate(f, expr.NATTypeDestNAT, portRegister))
	return Statement{
		Text: fmt.Sprintf("meta l4proto { tcp, udp, sctp } dnat to %s map @%s:%s map @%s", slot, slotMap.Name(), port.text,
			portMap.Name()),
		Exprs: exprs, protocols: true,
	}
}
