package endpointhealth

import (
	"net/netip"
	"slices"
	"testing"
)

// TestEmbedded: nobody has this node ask an address of IPv4 that it must not ask by writing it as one of IPv6.
func TestEmbedded(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.APIServers = []netip.AddrPort{netip.MustParseAddrPort("203.0.113.9:6443")} })
	w.Store.SetHostAddresses([]netip.Addr{netip.MustParseAddr("192.0.2.7")})
	for addr, refused := range map[string]bool{
		"64:ff9b::169.254.169.254": true, "64:ff9b::127.0.0.1": true, "64:ff9b::192.0.2.7": true, "64:ff9b::203.0.113.9": true,
		"64:ff9b:1::169.254.169.254": true, "64:ff9b:1:a9fe:a9:fe00::": true, "64:ff9b:1:a9:fe:a9fe::": true, "64:ff9b:1:7:a9:fea9:fe00::": true,
		"2002:a9fe:a9fe::1": true, "2002:c000:207::1": true, "::127.0.0.1": true, "::ffff:0:169.254.169.254": true, "::ffff:169.254.169.254": true,
		"64:ff9b::10.0.0.1": false, "64:ff9b:1::10.0.0.1": false, "2002:a00:1::1": false, "::ffff:10.0.0.1": false, "2001:db8::a9fe:a9fe": false,
		"64:ff9b:2::169.254.169.254": false,
	} {
		if is := w.permit.refuses(netip.AddrPortFrom(netip.MustParseAddr(addr), 80)); is != refused {
			t.Errorf("%s is refused: %t, want %t", addr, is, refused)
		}
	}
}

// TestHosts: the address of IPv4 in an address of a translator, for each length of its prefix (RFC 6052, section 2.2: byte 8 is zero).
func TestHosts(t *testing.T) {
	for addr, want := range map[string][]string{
		"64:ff9b:1:102:3:400::":   {"3.4.0.0", "2.3.4.0", "1.2.3.4"}, // of 48 bits, after those that other lengths read
		"64:ff9b:1:1:2:304::":     {"2.3.4.0", "1.2.3.4", "0.1.2.3"}, // of 56 bits
		"64:ff9b:1:0:1:203:400:0": {"4.0.0.0", "1.2.3.4", "0.1.2.3", "0.0.1.2"},
		"64:ff9b:1::1.2.3.4":      {"1.2.3.4", "0.0.0.1"},
		"2002:102:304::5":         {"1.2.3.4"},
		"64:ff9b::1.2.3.4":        {"1.2.3.4"},
		"::ffff:0:1.2.3.4":        {"1.2.3.4"},
		"2001:db8::1.2.3.4":       nil,
		"10.0.0.1":                nil,
	} {
		var got []string
		for _, h := range hosts(netip.MustParseAddr(addr))[1:] {
			got = append(got, h.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s goes on to %q, want %q", addr, got, want)
		}
	}
}
