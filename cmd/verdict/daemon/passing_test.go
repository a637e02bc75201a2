package daemon

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestPassingIsBounded: neither a young reading nor one of a large table is repeated. The settings are not there, so a reading would
// fail.
func TestPassingIsBounded(t *testing.T) {
	want := []socket.Passing{{Service: "shop/web:http", Open: 7}}
	for what, p := range map[string]*passing{
		"a young one":          {began: time.Now().Add(-time.Hour), rows: want},
		"one of a large table": {began: time.Now(), took: time.Hour, rows: want},
	} {
		within := time.Nanosecond
		if p.took == 0 {
			within = 24 * time.Hour
		}
		if got, err := p.read(within); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
}

// TestServedAt: a connection belongs to the Service port at its address, at its node port or in its range of ports.
func TestServedAt(t *testing.T) {
	store := state.NewStore()
	store.SetService(&state.Service{
		Name: state.Name{Namespace: "shop", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("203.0.113.1")},
		Ports: []state.ServicePort{
			{Name: "http", Protocol: state.TCP, Port: 80, NodePort: 30080}, {Protocol: state.UDP, Port: 10000, EndPort: 10009},
		},
	}, nil)
	s := servedAt(store)
	for _, tt := range []struct {
		at        string
		protocol  uint8
		name      string
		clusterIP bool
	}{
		{"10.96.0.10:80", unix.IPPROTO_TCP, "shop/web:http", true},
		{"203.0.113.1:80", unix.IPPROTO_TCP, "shop/web:http", false},
		{"192.0.2.1:30080", unix.IPPROTO_TCP, "shop/web:http", false},
		{"203.0.113.1:10009", unix.IPPROTO_UDP, "shop/web:10000", false},
		{"10.96.0.10:10009", unix.IPPROTO_UDP, "shop/web:10000", true},
		{"10.96.0.10:10010", unix.IPPROTO_UDP, "", false},
		{"10.96.0.10:80", unix.IPPROTO_UDP, "", false},
		{"10.96.0.11:80", unix.IPPROTO_TCP, "", false},
	} {
		got, _ := s.find(netip.MustParseAddrPort(tt.at), tt.protocol)
		if got.name != tt.name || got.clusterIP != tt.clusterIP {
			t.Errorf("%s of protocol %d belongs to %+v, want %s", tt.at, tt.protocol, got, tt.name)
		}
	}
}
