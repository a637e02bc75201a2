package nft

import (
	"fmt"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// firstRegister is the first 32-bit register (NFT_REG32_00). A concatenation fills the registers behind it.
const firstRegister uint32 = unix.NFT_REG32_00

// scratchRegister holds the input of a hash, out of the way of any key (nft uses the same one).
const scratchRegister uint32 = unix.NFT_REG32_00 + 6

// field is one thing that a rule looks at: its text in nft syntax, and how it gets into a register.
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

// load puts the fields into consecutive registers from firstRegister on.
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

// originalDaddr is the destination before DNAT.
func (p program) originalDaddr() field {
	ctKey := expr.CtKey(unix.NFT_CT_DST_IP)
	if p.family == IPv6 {
		ctKey = unix.NFT_CT_DST_IP6
	}
	return originalField("ct original "+p.family.String()+" daddr", p.family.addrLen(), ctKey)
}

// originalDport is the destination port before DNAT. nft types it only in a rule that names one protocol first.
func originalDport() field {
	return originalField("ct original proto-dst", 2, expr.CtKeyPROTODST)
}

func originalField(text string, bytes int, ctKey expr.CtKey) field {
	return field{text: text, bytes: bytes, load: func(reg uint32) []expr.Any {
		// Direction 0 is IP_CT_DIR_ORIGINAL; google/nftables writes the direction for these keys.
		return []expr.Any{&expr.Ct{Register: reg, Key: ctKey, Direction: 0}}
	}}
}

func l4proto() field {
	return field{text: "meta l4proto", bytes: 1, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg}}
	}}
}

// dport is the destination port of whatever transport header the packet has.
func dport() field {
	return field{text: "th dport", bytes: 2, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}}
	}}
}

// scratch is the packet's priority field, in which the program keeps its one number (see package documentation of
// the number in class.go).
func scratch() field {
	return field{text: "meta priority", bytes: 4, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: reg}}
	}}
}

// masked is the scratch number and a mask.
func masked(mask uint32) field { return maskedAndFlipped("meta priority & "+classID(mask), mask, 0) }

// flipped is the scratch number with some bits inverted.
func flipped(xor uint32) field {
	return maskedAndFlipped("meta priority ^ "+classID(xor), 0xffffffff, xor)
}

func maskedAndFlipped(text string, mask, xor uint32) field {
	return field{text: text, bytes: 4, load: func(reg uint32) []expr.Any {
		return append(scratch().load(reg), &expr.Bitwise{
			SourceRegister: reg, DestRegister: reg, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: binaryutil.NativeEndian.PutUint32(xor),
		})
	}}
}

// drawn is the number of a slot.
func (p program) drawn(d draw) field {
	switch d.method {
	case InTurn:
		return numgen("inc", d.size)
	case SourceHash:
		return p.sourceHash(d.size)
	}
	return numgen("random", d.size)
}

// numgen counts or draws a number below n.
func numgen(mode string, n uint32) field {
	typ := uint32(unix.NFT_NG_RANDOM)
	if mode == "inc" {
		typ = unix.NFT_NG_INCREMENTAL
	}
	return field{text: fmt.Sprintf("numgen %s mod %d", mode, n), bytes: 4, load: func(reg uint32) []expr.Any {
		return []expr.Any{&expr.Numgen{Register: reg, Modulus: n, Type: typ}}
	}}
}

// sourceHash is a number below n that depends on the client's address only. The seed is fixed, so that all nodes and
// all restarts agree.
func (p program) sourceHash(n uint32) field {
	source := p.saddr()
	return field{
		text:  fmt.Sprintf("jhash %s mod %d seed 0x%x", source.text, n, hashSeed),
		bytes: 4,
		load: func(reg uint32) []expr.Any {
			return append(source.load(scratchRegister), &expr.Hash{
				SourceRegister: scratchRegister, DestRegister: reg, Length: uint32(p.family.addrLen()),
				Modulus: n, Seed: hashSeed, Type: expr.HashTypeJenkins,
			})
		},
	}
}

// hashSeed is any constant but 0: nft leaves seed 0 out of its listing, and then the kernel draws one at random.
const hashSeed = 0x76657264
