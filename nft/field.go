package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// firstRegister is the first 32-bit register (NFT_REG32_00). A concatenation fills the registers from here on.
const firstRegister uint32 = unix.NFT_REG32_00

// These registers hold the input of a hash: in a key that is looked up, and in one that a rule adds or deletes. No key
// reaches them, and nft uses the same registers.
const (
	hashRegister       uint32 = unix.NFT_REG32_00 + 6
	dynsetHashRegister uint32 = unix.NFT_REG32_00 + 4
)

// field is a value that a rule looks at: its text in nft syntax, and the expressions that load it into a register.
type field struct {
	text  string
	bytes int
	load  func(reg uint32) []expr.Any
}

func (f field) registers() uint32 { return uint32(f.bytes+3) / 4 }

// key is a concatenation of fields.
type key []field

func (k key) String() string {
	parts := make([]string, len(k))
	for i, f := range k {
		parts[i] = f.text
	}
	return strings.Join(parts, " . ")
}

// load loads the fields into consecutive registers from firstRegister on.
func (k key) load() []expr.Any {
	var out []expr.Any
	reg := firstRegister
	for _, f := range k {
		out = append(out, f.load(reg)...)
		reg += f.registers()
	}
	return out
}

func (p program) saddr() field { return p.address("saddr", p.saddrOffset()) }
func (p program) daddr() field { return p.address("daddr", p.daddrOffset()) }

func (p program) address(name string, offset uint32) field {
	return field{
		text:  p.family.String() + " " + name,
		bytes: p.family.addrLen(),
		load: func(reg uint32) []expr.Any {
			return []expr.Any{&expr.Payload{
				DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(p.family.addrLen()),
			}}
		},
	}
}

// saddrPrefix is the source address, cut to the first bits.
func (p program) saddrPrefix(length int) field {
	bits := 8 * p.family.addrLen()
	if length == bits {
		return p.saddr()
	}
	whole, _ := netip.AddrFromSlice(slices.Repeat([]byte{0xff}, p.family.addrLen()))
	mask := netip.PrefixFrom(whole, length).Masked().Addr()
	f := p.saddr()
	return field{text: f.text + " & " + mask.String(), bytes: f.bytes, load: func(reg uint32) []expr.Any {
		return append(f.load(reg), &expr.Bitwise{
			SourceRegister: reg, DestRegister: reg, Len: uint32(f.bytes), Mask: mask.AsSlice(), Xor: make([]byte, f.bytes),
		})
	}}
}

// originalDaddr is the destination before DNAT.
func (p program) originalDaddr() field {
	return p.trackedAddress("original", "daddr", unix.NFT_CT_DST_IP, 0)
}

// originalSaddr is the client.
func (p program) originalSaddr() field {
	return p.trackedAddress("original", "saddr", unix.NFT_CT_SRC_IP, 0)
}

// replySaddr is the endpoint.
func (p program) replySaddr() field { return p.trackedAddress("reply", "saddr", unix.NFT_CT_SRC_IP, 1) }

// trackedAddress is an address of the connection. IPv4 has the key; IPv6 has the key two numbers later.
func (p program) trackedAddress(direction, end string, ctKey expr.CtKey, number uint32) field {
	if p.family == IPv6 {
		ctKey += unix.NFT_CT_SRC_IP6 - unix.NFT_CT_SRC_IP
	}
	return trackedField("ct "+direction+" "+p.family.String()+" "+end, p.family.addrLen(), ctKey, number)
}

// originalDport is the destination port before DNAT. nft knows the type of such ports only in a rule that names one
// protocol first.
func originalDport() field { return trackedField("ct original proto-dst", 2, expr.CtKeyPROTODST, 0) }
func originalSport() field { return trackedField("ct original proto-src", 2, expr.CtKeyPROTOSRC, 0) }
func replySport() field    { return trackedField("ct reply proto-src", 2, expr.CtKeyPROTOSRC, 1) }

// trackedProtocol is the protocol of the connection. An error about a connection has another one.
func trackedProtocol() field { return trackedField("ct protocol", 1, expr.CtKeyPROTOCOL, 0) }

// trackedField is a part of the connection's tuple for one direction: IP_CT_DIR_ORIGINAL (0) or IP_CT_DIR_REPLY (1).
func trackedField(text string, bytes int, ctKey expr.CtKey, direction uint32) field {
	return field{text: text, bytes: bytes, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Ct{Register: reg, Key: ctKey, Direction: direction}}
	}}
}

func l4proto() field {
	return field{text: "meta l4proto", bytes: 1, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg}}
	}}
}

// dport is the destination port, of any transport protocol.
func dport() field {
	return field{text: "th dport", bytes: 2, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}}
	}}
}

// tcpDport is the destination port of a TCP packet.
func tcpDport() field {
	f := dport()
	f.text = "tcp dport"
	return f
}

// scratch is the packet's priority field, which holds the scratch number (class.go describes it).
func scratch() field {
	return field{text: "meta priority", bytes: 4, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: reg}}
	}}
}

// masked is the scratch number with a mask applied.
func masked(mask uint32) field { return maskedAndFlipped("meta priority & "+classID(mask), mask, 0) }

// flipped is the scratch number with some bits inverted.
func flipped(xor uint32) field {
	return maskedAndFlipped("meta priority ^ "+classID(xor), 0xffffffff, xor)
}

// maskedWith is the scratch number with a mask applied, and then with some bits set.
func maskedWith(mask, bits uint32) field {
	return maskedAndFlipped("meta priority & "+classID(mask|bits)+" | "+classID(bits), mask&^bits, bits)
}

func maskedAndFlipped(text string, mask, xor uint32) field {
	return field{text: text, bytes: 4, load: func(reg uint32) []expr.Any {
		return append(scratch().load(reg), &expr.Bitwise{
			SourceRegister: reg, DestRegister: reg, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: binaryutil.NativeEndian.PutUint32(xor),
		})
	}}
}

// drawn is the slot number that a draw yields.
func (p program) drawn(d draw) field {
	switch d.method {
	case InTurn:
		return numgen("inc", d.size)
	case SourceHash:
		return p.sourceHash(d.size, hashRegister)
	}
	return numgen("random", d.size)
}

// numgen is a number below n: the next one in turn (mode "inc") or a random one (mode "random").
func numgen(mode string, n uint32) field {
	typ := uint32(unix.NFT_NG_RANDOM)
	if mode == "inc" {
		typ = unix.NFT_NG_INCREMENTAL
	}
	return field{text: fmt.Sprintf("numgen %s mod %d", mode, n), bytes: 4, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Numgen{Register: reg, Modulus: n, Type: typ}}
	}}
}

// sourceHash is a number below n that depends only on the client's address. The seed is fixed, so all nodes get the
// same number, before and after a restart.
func (p program) sourceHash(n, input uint32) field {
	source := p.saddr()
	return field{
		text:  fmt.Sprintf("jhash %s mod %d seed 0x%x", source.text, n, hashSeed),
		bytes: 4,
		load: func(reg uint32) []expr.Any {
			return append(source.load(input), &expr.Hash{
				SourceRegister: input, DestRegister: reg, Length: uint32(p.family.addrLen()),
				Modulus: n, Seed: hashSeed, Type: expr.HashTypeJenkins,
			})
		},
	}
}

// clientKey is the key of the client's entry in the affinity map: the number of the service port, and the client
// number. There are only so many client numbers, and so no flood of forged addresses to one service port fills the map.
func (p program) clientKey(input uint32) key {
	share := p.affinityShare
	if share == 0 {
		share = defaultAffinityShare
	}
	return key{masked(groupMask), p.sourceHash(share, input)}
}

// hashSeed may be any constant except 0. nft does not list seed 0, and without a seed the kernel draws one at random.
const hashSeed = 0x76657264
