package program

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// Element is one element of a set or map. Its bytes are in the arena of its transaction, in the form of the kernel.
type Element struct {
	Offset  uint32 // of the key in the arena; the data follow
	KeyLen  uint8  // length of the key
	DataLen uint8  // length of the data
	// IntervalEnd marks the element that closes a range in a set with a single key (kernel: NFT_SET_ELEM_INTERVAL_END).
	IntervalEnd bool
	// Label is the comment; in the dispatch map it is the name of the chain.
	Label string
}

func (e Element) Key(arena []byte) []byte {
	return arena[e.Offset : e.Offset+uint32(e.KeyLen)]
}

func (e Element) Data(arena []byte) []byte {
	at := e.Offset + uint32(e.KeyLen)
	return arena[at : at+uint32(e.DataLen)]
}

// ElementID names an element by its key, and by whether it is the end of a range.
func ElementID(key []byte, intervalEnd bool) string {
	if intervalEnd {
		return string(key) + "end"
	}
	return string(key)
}

// Text is the element as nft lists it, without the values of counters.
func (e Element) Text(d *Set, arena []byte) string {
	var b strings.Builder
	b.WriteString(d.KeyText(e.Key(arena)))
	isVerdict := d.LeadsToChains()
	if e.Label != "" && !isVerdict {
		b.WriteString(` comment "` + e.Label + `"`)
	}
	switch {
	case isVerdict && e.Label != "":
		b.WriteString(" : goto " + e.Label)
	case e.DataLen > 0:
		b.WriteString(" : " + PrintConcat(d.Data, e.Data(arena)))
	}
	return b.String()
}

// KeyText is a key of the set as nft lists it.
func (d *Set) KeyText(key []byte) string {
	n := KeyLength(d.Key)
	text := PrintConcat(d.Key, key[:n])
	if len(key) == 2*n {
		text += "-" + d.Key[len(d.Key)-1].print(key[2*n-d.Key[len(d.Key)-1].Padded():])
	}
	return text
}

func PrintConcat(types []Type, b []byte) string {
	if len(types) == 1 {
		return types[0].print(b)
	}
	parts := make([]string, 0, len(types))
	for _, t := range types {
		parts = append(parts, t.print(b[:t.Bytes]))
		b = b[t.Padded():]
	}
	return strings.Join(parts, " . ")
}

// PrefixText prints the prefix that covers exactly first to last.
func PrefixText(first, last []byte) string {
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

// LastAddr is the highest address of a prefix.
func LastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Builder appends keys and data to an arena.
type Builder struct{ Arena []byte }

func (b *Builder) Addr(a netip.Addr) {
	if a.Is4() {
		v := a.As4()
		b.Arena = append(b.Arena, v[:]...)
		return
	}
	v := a.As16()
	b.Arena = append(b.Arena, v[:]...)
}

// Proto and port take a whole register each, as in a concatenation.
func (b *Builder) Proto(p uint8) { b.Arena = append(b.Arena, p, 0, 0, 0) }
func (b *Builder) Port(p uint16) { b.Arena = append(b.Arena, byte(p>>8), byte(p), 0, 0) }
func (b *Builder) Word(v uint32) { b.Arena = binary.NativeEndian.AppendUint32(b.Arena, v) }

func (b *Builder) Device(name string) {
	b.Arena = append(append(b.Arena, name...), make([]byte, unix.IFNAMSIZ-len(name))...)
}

// Frontend appends the key of a frontend. A node port has no address. The key of a range, whose last port is not 0, is twice
// as long (see Set.Ports).
func (b *Builder) Frontend(addr netip.Addr, port, lastPort uint16, protocol uint8) {
	if addr.IsValid() {
		b.Addr(addr)
	}
	b.Proto(protocol)
	b.Port(port)
	if lastPort != 0 {
		b.Frontend(addr, lastPort, 0, protocol)
	}
}

// EndpointOf reads what Addr and perhaps Port wrote: an endpoint without a port has the port 0. It reports false if there
// is no address.
func EndpointOf(f Family, b []byte) (at netip.AddrPort, ok bool) {
	n := f.AddrLen()
	if len(b) < n {
		return at, false
	}
	addr, _ := netip.AddrFromSlice(b[:n])
	if len(b) < n+TypePort.Bytes {
		return netip.AddrPortFrom(addr, 0), true
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[n:])), true
}

// FrontendLength is how long the key of a frontend with an address is, if it is no range.
func FrontendLength(f Family) int { return f.AddrLen() + TypeProto.Padded() + TypePort.Padded() }

func (b *Builder) Mark() uint32 { return uint32(len(b.Arena)) }
func (b *Builder) Since(m uint32) uint8 {
	return uint8(uint32(len(b.Arena)) - m)
}

// MaxComment is nft's limit (NFTNL_UDATA_COMMENT_MAXLEN). nft would list a longer comment, but could not load it.
const MaxComment = 128

// LocalSuffix is what the comment of a local pool has behind the name of the service port.
const LocalSuffix = " local"

// A name of a service port can have 191 bytes. A restarted process finds its ports in the kernel by their comments, so
// different names need different comments.
const (
	maxLabel        = MaxComment - len(LocalSuffix)
	maxServiceLabel = 93
	maxPortLabel    = maxLabel - maxServiceLabel - len(":")
)

// Label is how the kernel's tables show the name of a service port, namespace/name:port. Long names are shortened; what
// is left out counts by a digest.
func Label(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	at := strings.LastIndexByte(name, ':')
	if at < 0 {
		return Shorten(name, maxLabel)
	}
	return ServiceLabel(name[:at]) + ":" + Shorten(name[at+1:], maxPortLabel)
}

// PoolLabel is the comment of the elements of a service port's pool.
func PoolLabel(name string, pool uint32) string {
	if pool&LocalBit != 0 {
		return Label(name) + LocalSuffix
	}
	return Label(name)
}

// ServiceLabel is the name of a Service in a Label that is shortened.
func ServiceLabel(service string) string { return Shorten(service, maxServiceLabel) }

// Shorten replaces the end of a text by a digest of the whole text, if it is longer than allowed. Names of objects have
// no tilde.
func Shorten(s string, allowed int) string {
	if len(s) <= allowed {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	digest := "~" + hex.EncodeToString(sum[:6])
	return s[:allowed-len(digest)] + digest
}
