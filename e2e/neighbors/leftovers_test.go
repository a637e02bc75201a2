//go:build e2e

package neighbors

import "testing"

// TestLeftBehind: what other Service proxies leave on a node. "verdict check" names it, and Verdict serves beside it. The
// tests of e2e/takeover have kube-proxy itself in each of its modes.
func TestLeftBehind(t *testing.T) {
	needs(t, "nft", "ipset")
	for name, left := range map[string]string{
		"kube-proxy": `nft add table ip kube-proxy
nft add table ip nat
nft add chain ip nat KUBE-SERVICES
ip link add kube-ipvs0 type bridge
ipset create KUBE-CLUSTER-IP hash:ip,port
ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6
`,
		"Cilium": `nft add table ip nat
nft add chain ip nat CILIUM_PRE_nat
ip link add cilium_host type veth peer name cilium_net
`,
		"kube-router": `nft add table ip nat
nft add chain ip nat KUBE-ROUTER-HAIRPIN
ip link add kube-dummy-if type bridge
ipset create kube-router-svip hash:ip timeout 0
ipset create inet6:kube-router-svip hash:ip family inet6 timeout 0
`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.Node.Must(t, left, "sh", "-e")
			b.expectTrace(t, name)
			b.startVerdict(t)
			b.expectServed(t, "beside what "+name+" left")
		})
	}
}
