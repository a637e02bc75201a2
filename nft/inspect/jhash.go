package inspect

import (
	"encoding/binary"
	"math/bits"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// jhash is the kernel's hash of the same name (linux/jhash.h) for a client: one word or more, but not a multiple of three.
func jhash(client []byte, seed uint32) uint32 {
	const initial = 0xdeadbeef
	a := uint32(initial) + uint32(len(client)) + seed
	b, c := a, a
	for ; len(client) > 12; client = client[12:] {
		word := func(i int) uint32 { return binary.NativeEndian.Uint32(client[4*i:]) }
		a, b, c = jhashMix(a+word(0), b+word(1), c+word(2))
	}
	if len(client) > 4 {
		b += binary.LittleEndian.Uint32(client[4:])
	}
	return jhashFinal(a+binary.LittleEndian.Uint32(client), b, c)
}

func jhashMix(a, b, c uint32) (uint32, uint32, uint32) {
	rol := bits.RotateLeft32
	a = (a - c) ^ rol(c, 4)
	c += b
	b = (b - a) ^ rol(a, 6)
	a += c
	c = (c - b) ^ rol(b, 8)
	b += a
	a = (a - c) ^ rol(c, 16)
	c += b
	b = (b - a) ^ rol(a, 19)
	a += c
	c = (c - b) ^ rol(b, 4)
	b += a
	return a, b, c
}

func jhashFinal(a, b, c uint32) uint32 {
	rol := bits.RotateLeft32
	c = (c ^ b) - rol(b, 14)
	a = (a ^ c) - rol(c, 11)
	b = (b ^ a) - rol(a, 25)
	c = (c ^ b) - rol(b, 16)
	a = (a ^ c) - rol(c, 4)
	b = (b ^ a) - rol(a, 14)
	c = (c ^ b) - rol(b, 24)
	return c
}

// hashBelow is what the expression "jhash ... mod n" of the program yields for a client.
func hashBelow(client []byte, n uint32) uint32 {
	return uint32(uint64(jhash(client, rule.HashSeed)) * uint64(n) >> 32)
}
