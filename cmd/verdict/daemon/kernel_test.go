package daemon

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
)

// TestEmpty: what an earlier process left in either engine is not replaced in pieces.
func TestEmpty(t *testing.T) {
	for name, want := range map[string]bool{"nothing": true, "no IPVS": true, "tables": false, "virtual servers": false} {
		t.Run(name, func(t *testing.T) {
			k, rules, servers := &kernelSide{}, &memkernel.NFTables{}, memkernel.NewIPVS()
			open := func() {
				var err error
				if k.engine, err = nft.New(rules, nft.Options{}); err != nil {
					t.Fatal(err)
				}
				if k.balancer, err = ipvsctl.New(ipvsctl.Options{}, servers); err != nil {
					t.Fatal(err)
				}
			}
			open()
			var err error
			switch name {
			case "no IPVS":
				k.balancer = nil
			case "tables":
				_, err = k.engine.Apply()
				open()
			case "virtual servers":
				v := ipvsctl.VirtualServer{Key: ipvsctl.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: ipvsctl.TCP}, Scheduler: "rr"}
				if err = k.balancer.Set("gone", []ipvsctl.VirtualServer{v}); err == nil {
					_, err = k.balancer.Add(time.Now())
				}
				open()
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := k.empty(); got != want {
				t.Error(got)
			}
		})
	}
}
