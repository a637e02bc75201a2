package contents

import (
	"net/netip"
	"testing"
)

// TestKeepsPorts: an endpoint without a port, in any of the pools, says that connections keep theirs.
func TestKeepsPorts(t *testing.T) {
	with, without := []Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.1:80")}}, []Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.1:0")}}
	for i, tt := range []struct {
		port Port
		want bool
	}{
		{Port{}, false},
		{Port{Cluster: with, Local: with}, false},
		{Port{Cluster: without}, true},
		{Port{Local: without}, true},
		{Port{Local: with}, false},
	} {
		if got := tt.port.KeepsPorts(); got != tt.want {
			t.Errorf("%d: %t", i, got)
		}
	}
}
