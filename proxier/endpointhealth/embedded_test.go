package endpointhealth

import (
	"net/netip"
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
