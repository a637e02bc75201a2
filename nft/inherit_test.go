//go:build !nokernel

package nft

import (
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestInherited: a new engine can ask which frontends the earlier engine served.
func TestInherited(t *testing.T) {
	n := newNamespace(t)
	before := n.engine(t)
	before.SetGlobals(contents.Globals{IPVS: true, NodePortAddresses: []netip.Addr{serviceIP(program.IPv4, 7), serviceIP(program.IPv6, 7)}})
	for _, f := range program.Families() {
		p := scalePort(f, 0, 2)
		p.Protocol = udp
		p.Frontends = []contents.Frontend{
			{Addr: serviceIP(f, 1), Port: 53, ClusterIP: true, Pool: program.ClusterPool},
			{Addr: serviceIP(f, 2), Port: 53, IPVS: true},
			{Addr: serviceIP(f, 3), Port: 53, Refusal: program.Reject},
			{Port: 30053, Pool: program.ClusterPool},
		}
		mustSet(t, before, p)
	}
	mustApply(t, before)
	after := n.engine(t)
	for _, f := range program.Families() {
		for _, tt := range []struct {
			name     string
			protocol uint8
			addr     netip.Addr
			port     uint16
			want     bool
		}{
			{"cluster IP", udp, serviceIP(f, 1), 53, true},
			{"served by IPVS", udp, serviceIP(f, 2), 53, true},
			{"refused", udp, serviceIP(f, 3), 53, false},
			{"node port", udp, netip.Addr{}, 30053, true},
			{"another protocol", tcp, serviceIP(f, 1), 53, false},
			{"another port", udp, serviceIP(f, 1), 54, false},
			{"another address", udp, serviceIP(f, 9), 53, false},
			{"node port at its address", udp, serviceIP(f, 7), 30053, true},
			{"node port at another address", udp, serviceIP(f, 8), 30053, false},
			{"another node port at the address", udp, serviceIP(f, 7), 30054, false},
			{"another node port", udp, netip.Addr{}, 30054, false},
		} {
			got, err := after.Inherited(f, tt.protocol, tt.addr, tt.port)
			if err != nil || got != tt.want {
				t.Errorf("%s, %s: %t, %v", f, tt.name, got, err)
			}
		}
	}
	mustApply(t, after)
	for name, e := range map[string]*Engine{"after its first apply": after, "the first engine": before, "without tables": newNamespace(t).engine(t)} {
		if got, err := e.Inherited(program.IPv4, udp, serviceIP(program.IPv4, 1), 53); got || err != nil {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}
