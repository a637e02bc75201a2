package rule

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// FirstRegister is the first 32-bit register (NFT_REG32_00). A concatenation fills the registers from here on.
const FirstRegister uint32 = unix.NFT_REG32_00

// These registers hold the input of a hash: in a key that is looked up, and in one that a rule adds or deletes. No key
// reaches them, and nft uses the same registers.
const (
	HashRegister       uint32 = unix.NFT_REG32_00 + 6
	DynsetHashRegister uint32 = unix.NFT_REG32_00 + 4
)

// Field is a value that a rule looks at: its text in nft syntax, and the expressions that load it into a register.
type Field struct {
	text  string
	bytes int
	load  func(reg uint32) []expr.Any
}

func (f Field) registers() uint32 { return uint32(f.bytes+3) / 4 }

// Key is a concatenation of fields.
type Key []Field

func (k Key) String() string {
	parts := make([]string, len(k))
	for i, f := range k {
		parts[i] = f.text
	}
	return strings.Join(parts, " . ")
}

// load loads the fields into consecutive registers from FirstRegister on.
func (k Key) load() []expr.Any {
	var out []expr.Any
	reg := FirstRegister
	for _, f := range k {
		out = append(out, f.load(reg)...)
		reg += f.registers()
	}
	return out
}

func Saddr(f Family) Field { return address(f, "saddr", SourceOffset(f)) }
func Daddr(f Family) Field { return address(f, "daddr", DestinationOffset(f)) }

func address(f Family, name string, offset uint32) Field {
	return Field{
		text:  f.String() + " " + name,
		bytes: f.AddrLen(),
		load: func(reg uint32) []expr.Any {
			return []expr.Any{&expr.Payload{
				DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(f.AddrLen()),
			}}
		},
	}
}

// SaddrPrefix is the source address, cut to the first bits.
func SaddrPrefix(f Family, length int) Field {
	bits := 8 * f.AddrLen()
	if length == bits {
		return Saddr(f)
	}
	whole, _ := netip.AddrFromSlice(slices.Repeat([]byte{0xff}, f.AddrLen()))
	mask := netip.PrefixFrom(whole, length).Masked().Addr()
	addr := Saddr(f)
	return Field{text: addr.text + " & " + mask.String(), bytes: addr.bytes, load: func(reg uint32) []expr.Any {
		return append(addr.load(reg), &expr.Bitwise{
			SourceRegister: reg, DestRegister: reg, Len: uint32(addr.bytes), Mask: mask.AsSlice(), Xor: make([]byte, addr.bytes),
		})
	}}
}

// OriginalDaddr is the destination before DNAT.
func OriginalDaddr(f Family) Field {
	return trackedAddress(f, "original", "daddr", unix.NFT_CT_DST_IP, 0)
}

// OriginalSaddr is the client.
func OriginalSaddr(f Family) Field {
	return trackedAddress(f, "original", "saddr", unix.NFT_CT_SRC_IP, 0)
}

// ReplySaddr is the endpoint.
func ReplySaddr(f Family) Field { return trackedAddress(f, "reply", "saddr", unix.NFT_CT_SRC_IP, 1) }

// trackedAddress is an address of the connection. IPv4 has the key; IPv6 has the key two numbers later.
func trackedAddress(f Family, direction, end string, ctKey expr.CtKey, number uint32) Field {
	if f == serviceport.IPv6 {
		ctKey += unix.NFT_CT_SRC_IP6 - unix.NFT_CT_SRC_IP
	}
	return trackedField("ct "+direction+" "+f.String()+" "+end, f.AddrLen(), ctKey, number)
}

// OriginalDport is the destination port before DNAT. nft knows the type of such ports only in a rule that names one
// protocol first.
func OriginalDport() Field { return trackedField("ct original proto-dst", 2, expr.CtKeyPROTODST, 0) }
func OriginalSport() Field { return trackedField("ct original proto-src", 2, expr.CtKeyPROTOSRC, 0) }
func ReplySport() Field    { return trackedField("ct reply proto-src", 2, expr.CtKeyPROTOSRC, 1) }

// TrackedProtocol is the protocol of the connection. An error about a connection has another one.
func TrackedProtocol() Field { return trackedField("ct protocol", 1, expr.CtKeyPROTOCOL, 0) }

// trackedField is a part of the connection's tuple for one direction: IP_CT_DIR_ORIGINAL (0) or IP_CT_DIR_REPLY (1).
func trackedField(text string, bytes int, ctKey expr.CtKey, direction uint32) Field {
	return Field{text: text, bytes: bytes, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Ct{Register: reg, Key: ctKey, Direction: direction}}
	}}
}

// IIFName and OIFName are the names of the devices by which a packet arrived and leaves.
func IIFName() Field { return meta("iifname", unix.IFNAMSIZ, expr.MetaKeyIIFNAME) }
func OIFName() Field { return meta("oifname", unix.IFNAMSIZ, expr.MetaKeyOIFNAME) }

func L4Proto() Field { return meta("meta l4proto", 1, expr.MetaKeyL4PROTO) }

func meta(text string, bytes int, key expr.MetaKey) Field {
	return Field{text: text, bytes: bytes, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Meta{Key: key, Register: reg}}
	}}
}

// Dport is the destination port, of any transport protocol.
func Dport() Field { return transportPort("th dport", 2) }

// sport is the source port, of any transport protocol.
func sport() Field { return transportPort("th sport", 0) }

func transportPort(text string, offset uint32) Field {
	return Field{text: text, bytes: 2, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2}}
	}}
}

// TCPDport is the destination port of a TCP packet.
func TCPDport() Field { return transportPort("tcp dport", 2) }

// TCPSport is the source port of a TCP packet.
func TCPSport() Field { return transportPort("tcp sport", 0) }

// Scratch is the packet's priority field, which holds the scratch number (package program describes it).
func Scratch() Field { return meta("meta priority", 4, expr.MetaKeyPRIORITY) }

// Masked is the scratch number with a mask applied.
func Masked(mask uint32) Field { return maskedAndFlipped("meta priority & "+NumberText(mask), mask, 0) }

// Flipped is the scratch number with some bits inverted.
func Flipped(xor uint32) Field {
	return maskedAndFlipped("meta priority ^ "+NumberText(xor), 0xffffffff, xor)
}

// MaskedWith is the scratch number with a mask applied, and then with some bits set.
func MaskedWith(mask, bits uint32) Field {
	return maskedAndFlipped("meta priority & "+NumberText(mask|bits)+" | "+NumberText(bits), mask&^bits, bits)
}

func maskedAndFlipped(text string, mask, xor uint32) Field {
	return Field{text: text, bytes: 4, load: func(reg uint32) []expr.Any {
		return append(Scratch().load(reg), &expr.Bitwise{
			SourceRegister: reg, DestRegister: reg, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: binaryutil.NativeEndian.PutUint32(xor),
		})
	}}
}

// Numgen is a number below n: the next one in turn (mode "inc") or a random one (mode "random").
func Numgen(mode string, n uint32) Field {
	typ := uint32(unix.NFT_NG_RANDOM)
	if mode == "inc" {
		typ = unix.NFT_NG_INCREMENTAL
	}
	return Field{text: fmt.Sprintf("numgen %s mod %d", mode, n), bytes: 4, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Numgen{Register: reg, Modulus: n, Type: typ}}
	}}
}

// SourceHash is a number below n that depends only on the client's address. The seed is fixed, so all nodes get the
// same number, before and after a restart.
func SourceHash(f Family, n, input uint32) Field { return hashOf(Key{Saddr(f)}, n, input) }

// SourcePortHash is a number below n that depends only on the client's address and port.
func SourcePortHash(f Family, n, input uint32) Field { return hashOf(Key{Saddr(f), sport()}, n, input) }

func hashOf(source Key, n, input uint32) Field {
	return Field{
		text:  fmt.Sprintf("jhash %s mod %d seed 0x%x", source, n, HashSeed),
		bytes: 4,
		load: func(reg uint32) (out []expr.Any) {
			next := input
			for _, f := range source {
				out = append(out, f.load(next)...)
				next += f.registers()
			}
			return append(out, &expr.Hash{
				SourceRegister: input, DestRegister: reg, Length: 4 * (next - input),
				Modulus: n, Seed: HashSeed, Type: expr.HashTypeJenkins,
			})
		},
	}
}

// HashSeed may be any constant except 0. nft does not list seed 0, and without a seed the kernel draws one at random.
const HashSeed = 0x76657264

// NumberText prints a number as nft prints a traffic-control handle: major and minor half in hexadecimal.
func NumberText(v uint32) string {
	switch v {
	case 0:
		return "none"
	case 0xffffffff:
		return "root"
	}
	return fmt.Sprintf("%x:%x", v>>16, v&0xffff)
}

// ProtocolName is the name of a transport protocol; its number for others.
func ProtocolName(proto uint8) string { return serviceport.Protocol(proto).String() }

// Family is the family of a table.
type Family = serviceport.Family

// Choose is the value of a family.
func Choose[T any](f Family, four, six T) T {
	if f == serviceport.IPv6 {
		return six
	}
	return four
}

// SourceOffset and DestinationOffset are places in the network header (RFC 791, RFC 8200).
func SourceOffset(f Family) uint32      { return Choose[uint32](f, 12, 8) }
func DestinationOffset(f Family) uint32 { return Choose[uint32](f, 16, 24) }
