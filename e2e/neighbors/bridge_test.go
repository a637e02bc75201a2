//go:build e2e

package neighbors

import (
	"fmt"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// onBridge is a Service whose endpoint is the second pod on the bridge of the network plugin.
const onBridge = `apiVersion: v1
kind: Service
metadata: {namespace: shop, name: bridged}
spec:
  clusterIPs: [%[1]q, %[2]q]
  ipFamilies: [IPv4, IPv6]
  ports: [{name: tcp, protocol: TCP, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: bridged-4, labels: {kubernetes.io/service-name: bridged}}
addressType: IPv4
ports: [{name: tcp, protocol: TCP, port: 8080}]
endpoints: [{addresses: [%[3]q], nodeName: n1, conditions: {ready: true}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: bridged-6, labels: {kubernetes.io/service-name: bridged}}
addressType: IPv6
ports: [{name: tcp, protocol: TCP, port: 8080}]
endpoints: [{addresses: [%[4]q], nodeName: n1, conditions: {ready: true}}]
`

// TestPodsOnOneBridge: a pod reaches another one on its bridge through a cluster IP if the bridge shows packets to the
// rules (bridge-nf-call-iptables). Otherwise the bridge takes the answers past connection tracking: the client gets them
// from an address that it never asked. No packet leaves the node with Verdict's number in its priority field.
func TestPodsOnOneBridge(t *testing.T) {
	needs(t, "iptables", "nft")
	b, n := newBed(t), &cni{plugin: "bridge", backend: "iptables", tools: build(t, "cni"), ports: []int{hostPort}}
	n.start(t, b)
	daemon.WriteFile(t, b.objects, "bridged.yaml", fmt.Sprintf(onBridge, text(t, lab.IPv4, "VIP5"), text(t, lab.IPv6, "VIP5"),
		n.at[lab.IPv4][1], n.at[lab.IPv6][1]))
	b.startVerdict(t)
	b.Node.Must(t, `add table inet watch
add counter inet watch numbered
add chain inet watch late { type filter hook postrouting priority 300; }
add rule inet watch late tcp flags syn meta priority & 0xffff != 0 counter name numbered
`, "nft", "-f", "-")
	for _, on := range []int{1, 0} {
		for _, f := range lab.Families() {
			call := map[lab.Family]string{lab.IPv4: "iptables", lab.IPv6: "ip6tables"}[f]
			if err := b.Node.Sysctl(fmt.Sprintf("net.bridge.bridge-nf-call-%s=%d", call, on)); err != nil {
				t.Fatal(err)
			}
			q := lab.Question{Protocol: lab.TCP, To: address(t, f, "VIP5", servicePort), Patience: 10 * time.Second}
			if on == 0 {
				q.Patience = 2 * time.Second
			}
			r := n.pods[0].Ask(q)
			if served := r.Outcome == lab.Answered && r.Answer.Source == n.at[f][0]; served != (on == 1) {
				t.Errorf("bridge-nf-call-%s=%d: %s: %s, want an answer to the client's own address: %t", call, on, q, r, on == 1)
			}
			out, _ := b.Node.Command(binary, "check", "--manifests="+b.objects)
			if named := contains(out, "a pod cannot reach another one there through a Service"); f == lab.IPv4 && named != (on == 0) {
				t.Errorf("bridge-nf-call-%s=%d: \"verdict check\" names it: %t\n%s", call, on, named, out)
			}
		}
	}
	if out := b.Node.Must(t, "", "nft", "list", "counter", "inet", "watch", "numbered"); !contains(out, "packets 0 ") {
		t.Errorf("packets leave the node with a number in their priority field: %s", out)
	}
}
