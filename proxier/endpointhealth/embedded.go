package endpointhealth

import (
	"iter"
	"net/netip"
)

// embeddings are ranges of IPv6 whose packets go on to an address of IPv4, and which bytes of the address are that one. In the
// local range for translators, a network can have a prefix of any of the lengths of RFC 6052.
var embeddings = [...]struct {
	prefix netip.Prefix
	bytes  [4]int
}{
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}},           // automatic tunnels
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [4]int{12, 13, 14, 15}}, // SIIT
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{12, 13, 14, 15}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{9, 10, 11, 12}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{7, 9, 10, 11}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}},
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}}, // 6to4
}

// embedded yields the addresses of IPv4 to which packets to an address of IPv6 may go on.
func embedded(a netip.Addr) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		all := a.As16()
		for i := range embeddings {
			e := &embeddings[i]
			of := netip.AddrFrom4([4]byte{all[e.bytes[0]], all[e.bytes[1]], all[e.bytes[2]], all[e.bytes[3]]})
			if e.prefix.Contains(a) && !of.IsUnspecified() && !yield(of) { // all zero: it has the address at other bytes
				return
			}
		}
	}
}
