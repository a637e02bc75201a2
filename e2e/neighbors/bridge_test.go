//go:build e2e

package neighbors

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// alone returns a Service with one endpoint in each family, at a port of its own.
func alone(t *testing.T, name, vip string, v4, v6 netip.Addr, port int) string {
	t.Helper()
	out := strings.ReplaceAll(service(t, name, vip, "", 0, ""), "targetPort: 8080", fmt.Sprint("targetPort: ", port))
	for _, a := range []netip.Addr{v4, v6} {
		out += fmt.Sprintf("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
			"metadata: {namespace: shop, name: %[1]s-%[2]d, labels: {kubernetes.io/service-name: %[1]s}}\naddressType: %[3]s\n"+
			"ports: [{name: tcp, protocol: TCP, port: %[4]d}, {name: udp, protocol: UDP, port: %[4]d}]\n"+
			"endpoints: [{addresses: [%[5]q], nodeName: n1, conditions: {ready: true}}]\n", name, lab.FamilyOf(a), lab.FamilyOf(a), port, a)
	}
	return out
}

// watchPriorities counts packets that leave the node with Verdict's number in their priority field.
func (b *bed) watchPriorities(t *testing.T) {
	t.Helper()
	b.Node.Must(t, `add table inet watch
add counter inet watch numbered
add chain inet watch late { type filter hook postrouting priority 300; }
add rule inet watch late meta priority & ffff:fff0 != 0 counter name numbered
`, "nft", "-f", "-")
}

func (b *bed) expectPriorities(t *testing.T) {
	t.Helper()
	if out := b.Node.Must(t, "", "nft", "list", "counter", "inet", "watch", "numbered"); !contains(out, "packets 0 ") {
		t.Errorf("packets leave the node with a number in their priority field: %s", out)
	}
}

// TestPodsOnOneBridge: a pod reaches another one on its bridge through a cluster IP if the bridge shows packets to the
// rules (bridge-nf-call-iptables). Otherwise the bridge takes the answers past connection tracking: the client gets them
// from an address that it never asked. No packet leaves the node with Verdict's number in its priority field.
func TestPodsOnOneBridge(t *testing.T) {
	needs(t, "iptables", "nft")
	b, n := newBed(t), &cni{plugin: "bridge", backend: "iptables", tools: build(t, "cni"), ports: []int{hostPort}}
	n.start(t, b)
	daemon.WriteFile(t, b.objects, "bridged.yaml", alone(t, "bridged", "VIP5", n.at[lab.IPv4][1], n.at[lab.IPv6][1], 8080))
	b.startVerdict(t)
	b.watchPriorities(t)
	for _, on := range []int{1, 0} {
		for _, f := range lab.Families() {
			call := map[lab.Family]string{lab.IPv4: "iptables", lab.IPv6: "ip6tables"}[f]
			lab.Must(t, b.Node.Sysctl(fmt.Sprintf("net.bridge.bridge-nf-call-%s=%d", call, on)))
			q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f, "VIP5", servicePort), Patience: 10 * time.Second}
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
	b.expectPriorities(t)
}
