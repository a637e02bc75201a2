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

// TestServersInRanges: a range has no port of an API server either, also not where a load balancer may have the port.
func TestServersInRanges(t *testing.T) {
	c := New()
	c.SetServers(Servers{netip.MustParseAddrPort("192.0.2.8:6443"): true, netip.MustParseAddrPort("192.0.2.7:6443"): false})
	for words, want := range map[string]string{
		"%192.0.2.8:6443-6450/tcp": "", "+192.0.2.8:6000-6443/tcp": "", "%192.0.2.7:6000-7000/tcp": "",
		"%192.0.2.8:1-6442/tcp": "%192.0.2.8:1-6442/tcp", "+192.0.2.8:6444-65535/tcp": "+192.0.2.8:6444-65535/tcp",
		"%192.0.2.9:6000-7000/tcp": "%192.0.2.9:6000-7000/tcp", "%192.0.2.8:6000-7000/udp": "%192.0.2.8:6000-7000/udp",
	} {
		p := planOf("web", words)
		c.Resolve(p, at(1))
		if got := remaining(p); got != want {
			t.Errorf("%s: left %q, want %q", words, got, want)
		}
	}
}

// TestHealthCheckPortOfBothFamilies: a healthCheckNodePort is taken in both families.
func TestHealthCheckPortOfBothFamilies(t *testing.T) {
	for _, words := range []string{"*4:32000/tcp", "*6:32000/tcp"} {
		c := New()
		c.Resolve(planOf("a", "hc:32000"), at(1))
		p := planOf("b", words)
		c.Resolve(p, at(2))
		if got := remaining(p); got != "" {
			t.Errorf("%s: left %q", words, got)
		}
	}
}

// TestManyLosses: a Service that loses many frontends gets some Problems, and one that counts the others and names it.
func TestManyLosses(t *testing.T) {
	c, words := New(), ""
	for i := range 20 {
		words += fmt.Sprintf("192.0.2.1:%d/tcp ", 80+i)
	}
	c.Resolve(planOf("a", words), at(1))
	lost, _ := c.Resolve(planOf("b", words), at(2))
	last := lost[len(lost)-1]
	if last.More == 0 || last.Object.String() != "ns/b" || last.Kind != "Service" {
		t.Errorf("the last Problem of %d: %+v", len(lost), last)
	}
}

// TestLossInBothFamilies: a node port that one Service has in both families is one Problem, and two Services are two.
func TestLossInBothFamilies(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"*4:30080/tcp *6:30080/tcp", "", "node port 30080/tcp is taken by ns/a; "},
		{"*4:30080/tcp", "*6:30080/tcp", "node port 30080/tcp is taken by ns/a; node port 30080/tcp is taken by ns/b; "},
	} {
		c := New()
		c.Resolve(planOf("a", tt.a), at(1))
		c.Resolve(planOf("b", tt.b), at(1))
		lost, _ := c.Resolve(planOf("c", "*4:30080/tcp *6:30080/tcp"), at(2))
		got := ""
		for _, p := range lost {
			got += p.Reason + "; "
		}
		if got != tt.want {
			t.Errorf("lost %q, want %q", got, tt.want)
		}
	}
}
