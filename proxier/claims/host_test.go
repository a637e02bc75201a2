package claims

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// TestClusterIPOfTheNode: a cluster IP that is an address of this node takes only the ports of its Service.
func TestClusterIPOfTheNode(t *testing.T) {
	c := New()
	resolve := func(words string) string {
		p := planOf("web", words)
		lost, _ := c.Resolve(p, at(1))
		text := ""
		for _, port := range p.Ports {
			for _, fe := range port.Frontends {
				text += map[serviceport.Masquerade]string{serviceport.NoMasquerade: "alone ", serviceport.MasqueradeAlways: "shared "}[fe.Masquerade]
			}
		}
		for _, l := range lost {
			text += fmt.Sprintf("%s: %s ", l.Field, l.Reason)
		}
		return text
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	set := func(words ...string) string {
		var list []netip.Addr
		for _, w := range words {
			list = append(list, netip.MustParseAddr(w))
		}
		return fmt.Sprint(c.SetHostAddresses(list))
	}
	const words, problem = "192.0.2.1:80/tcp 192.0.2.1:81/tcp 10.96.0.1:80/tcp",
		"spec.clusterIPs: 192.0.2.1 is an address of this node: its other ports stay open, and all connections to the Service are masqueraded there "
	expect("addresses before Services", set("192.0.2.7"), "[]")
	expect("not of the node", resolve(words), "alone alone alone ")
	expect("plan again", set("192.0.2.1", "192.0.2.8"), "[ns/web]")
	expect("of the node", resolve(words), "shared shared alone "+problem)
	expect("nothing that concerns it", set("192.0.2.1", "192.0.2.9"), "[]")
	expect("the address goes", set("192.0.2.9"), "[ns/web]")
	expect("not of the node any more", resolve(words), "alone alone alone ")
	expect("external addresses", set("192.0.2.50"), "[]")
	expect("an external IP of the node", resolve("10.96.0.1:80/tcp +192.0.2.50:80/tcp"), "alone alone ")
}

// TestHostIsReportedOnce: a Service with many ports has one Problem of an address, which names it once.
func TestHostIsReportedOnce(t *testing.T) {
	c := New()
	c.SetHostAddresses([]netip.Addr{netip.MustParseAddr("192.0.2.1")})
	p := planOf("web", "192.0.2.1:80/tcp 192.0.2.1:81/tcp")
	if list := c.spareHost(p); len(list) != 1 {
		t.Errorf("%d Problems: %+v", len(list), list)
	}
}
