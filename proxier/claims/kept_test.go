package claims

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestServers: no Service outside of kube-system gets the address and port of an API server. Where only the configuration
// names the address, a load balancer may have it.
func TestServers(t *testing.T) {
	const words = "%192.0.2.8:6443/tcp +192.0.2.8:6443/tcp +192.0.2.8:443/tcp +192.0.2.8:6443/udp"
	real, named := netip.MustParseAddrPort("192.0.2.8:6443"), netip.MustParseAddrPort("192.0.2.7:6443")
	c := New()
	resolve := func(namespace, words string) string {
		p := planOf("web", words)
		p.Name.Namespace = namespace
		lost, _ := c.Resolve(p, at(1))
		return fmt.Sprint(remaining(p), " ", len(lost))
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	expect("no server is known", resolve("tenant", words), "%192.0.2.8:6443/tcp +192.0.2.8:443/tcp +192.0.2.8:6443/udp 1")
	expect("plan again", fmt.Sprint(c.SetServers(Servers{real: true, named: false})), "[tenant/web]")
	expect("a server", resolve("tenant", words), "+192.0.2.8:443/tcp +192.0.2.8:6443/udp 2")
	expect("a Service of the cluster", resolve("kube-system", "%192.0.2.8:6443/tcp"), "%192.0.2.8:6443/tcp 0")
	expect("the load balancer of the servers", resolve("tenant", "%192.0.2.7:6443/tcp"), "%192.0.2.7:6443/tcp 0")
	expect("a user at that address", resolve("tenant", "+192.0.2.7:6443/tcp"), " 1")
	expect("nothing changed", fmt.Sprint(c.SetServers(Servers{real: true, named: false})), "[]")
	expect("the servers go", fmt.Sprint(c.SetServers(nil)), "[tenant/web kube-system/web]")
	expect("without servers", resolve("tenant", "+192.0.2.7:6443/tcp"), "+192.0.2.7:6443/tcp 0")
}
