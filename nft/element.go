package nft

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
)

// element is one element of a set or map. Its bytes are in the arena of its transaction, in the form of the kernel.
type element struct {
	offset uint32 // of the key in the arena; the data follow
	key    uint8  // length of the key
	data   uint8  // length of the data
	// intervalEnd marks the element that closes a range in a set with a single key (kernel: NFT_SET_ELEM_INTERVAL_END).
	intervalEnd bool
	// label is the comment; in the dispatch map it is the name of the chain.
	label string
}

func (e element) keyBytes(arena []byte) []byte {
	return arena[e.offset : e.offset+uint32(e.key)]
}

func (e element) dataBytes(arena []byte) []byte {
	at := e.offset + uint32(e.key)
	return arena[at : at+uint32(e.data)]
}

// text is the element as nft lists it, without the values of counters.
func (e element) text(d *setDef, arena []byte) string {
	var b strings.Builder
	b.WriteString(printConcat(d.key, e.keyBytes(arena)))
	isVerdict := d.isMap() && d.data[0].name == typeVerdict.name
	if e.label != "" && !isVerdict {
		b.WriteString(` comment "` + e.label + `"`)
	}
	switch {
	case isVerdict && e.label != "":
		b.WriteString(" : goto " + e.label)
	case e.data > 0:
		b.WriteString(" : " + printConcat(d.data, e.dataBytes(arena)))
	}
	return b.String()
}

func printConcat(types []dataType, b []byte) string {
	if len(types) == 1 {
		return types[0].print(b)
	}
	parts := make([]string, 0, len(types))
	for _, t := range types {
		parts = append(parts, t.print(b[:t.bytes]))
		b = b[t.padded():]
	}
	return strings.Join(parts, " . ")
}

// prefixText prints the prefix that covers exactly first to last.
func prefixText(first, last []byte) string {
	addr, _ := netip.AddrFromSlice(first)
	length := 0
	for length < addr.BitLen() && first[length/8]>>(7-length%8)&1 == last[length/8]>>(7-length%8)&1 {
		length++
	}
	if length == addr.BitLen() {
		return addr.String()
	}
	return netip.PrefixFrom(addr, length).String()
}

// lastAddr is the highest address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// withoutNested returns the prefixes of a family, sorted and without those inside others: the kernel refuses ranges
// that overlap.
func withoutNested(list []netip.Prefix, f Family) []netip.Prefix {
	var own []netip.Prefix
	for _, p := range list {
		if FamilyOf(p.Addr()) == f {
			own = append(own, p.Masked())
		}
	}
	sortPrefixes(own)
	var out []netip.Prefix
	for _, p := range own {
		if n := len(out); n > 0 && out[n-1].Overlaps(p) {
			continue // the list is sorted by address, short prefixes first: p is inside the earlier prefix
		}
		out = append(out, p)
	}
	return out
}

func comparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// builder appends keys and data to an arena.
type builder struct{ arena []byte }

func (b *builder) addr(a netip.Addr) {
	if a.Is4() {
		v := a.As4()
		b.arena = append(b.arena, v[:]...)
		return
	}
	v := a.As16()
	b.arena = append(b.arena, v[:]...)
}

// proto and port take a whole register each, as in a concatenation.
func (b *builder) proto(p uint8) { b.arena = append(b.arena, p, 0, 0, 0) }
func (b *builder) port(p uint16) { b.arena = append(b.arena, byte(p>>8), byte(p), 0, 0) }
func (b *builder) word(v uint32) { b.arena = binary.NativeEndian.AppendUint32(b.arena, v) }
func (b *builder) mark() uint32  { return uint32(len(b.arena)) }
func (b *builder) since(m uint32) uint8 {
	return uint8(uint32(len(b.arena)) - m)
}

func sameElement(a, b element, arenaA, arenaB []byte) bool {
	return a.label == b.label && bytes.Equal(a.dataBytes(arenaA), b.dataBytes(arenaB))
}
