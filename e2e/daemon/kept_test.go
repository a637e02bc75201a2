//go:build !nokernel

package daemon

import (
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestTenantsTakeNoServer: a tenant who writes the address of an API server into externalIPs, or another Service's cluster
// IP, gets no packet of it. Pod d stands in for the API server.
func TestTenantsTakeNoServer(t *testing.T) {
	w, dir := lab.New(t), t.TempDir()
	vip := lab.Address(lab.IPv4, "VIP1")
	server := netip.AddrPortFrom(lab.PodAddress(lab.IPv4, "d"), 8081)
	web := Service{Name: "shop/web", ClusterIP: vip, Node: "n2", Endpoints: []string{lab.PodAddress(lab.IPv4, "c").String()}}
	evil := Service{
		Name: "tenant/evil", ClusterIP: ClusterIP(1), Node: "n1", Endpoints: []string{lab.PodAddress(lab.IPv4, "b").String()},
		Spec: `"externalIPs": ["` + server.Addr().String() + `", "` + vip.String() + `", "198.51.100.1"],`, Port: 8081,
	}
	WriteFile(t, dir, "evil.yaml", evil.Manifest())
	WriteFile(t, dir, "web.yaml", web.Manifest()+`---
{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
 "metadata": {"namespace": "default", "name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
 "ports": [{"name": "https", "port": 8081}], "endpoints": [{"addresses": ["`+server.Addr().String()+`"]}]}
`)
	Start(t, binary, w.Node, dir)
	for _, from := range []string{lab.Node, "a", lab.Outside} {
		ask := func(to netip.AddrPort) string {
			r := w.At(t, from).Ask(lab.Question{Protocol: lab.TCP, To: to, Patience: Patience})
			if r.Outcome == lab.Answered {
				return r.Answer.Name()
			}
			return string(r.Outcome)
		}
		for to, want := range map[netip.AddrPort]string{
			netip.MustParseAddrPort("198.51.100.1:8081"): "b", server: "d:8081",
			netip.AddrPortFrom(vip, 80): "c", netip.AddrPortFrom(vip, 8081): string(lab.Refused),
		} {
			if got := ask(to); got != want {
				t.Errorf("from %s to %s: %s, want %s", from, to, got, want)
			}
		}
	}
}
