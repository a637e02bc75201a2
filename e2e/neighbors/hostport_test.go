//go:build e2e

package neighbors

import (
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestHostPortIsNodePort: a pod has a host port with the number of a node port. Both translate at priority -100, where the
// kernel calls the chain first that was registered last. So who began last gets the connections, and "verdict explain"
// names the other chain.
func TestHostPortIsNodePort(t *testing.T) {
	needs(t, "iptables", "nft")
	tools := build(t, "cni")
	for _, backend := range []string{"iptables", "nftables"} {
		t.Run(backend+", the pod first", func(t *testing.T) {
			b, n := newBed(t), &cni{plugin: "bridge", backend: backend, tools: tools, ports: []int{nodePort}}
			n.start(t, b)
			b.startVerdict(t)
			b.expectNodePortOf(t, "a", "b", "c")
			b.restartVerdict(t)
			b.expectNodePortOf(t, "a", "b", "c")
		})
		t.Run(backend+", Verdict first", func(t *testing.T) {
			b, n := newBed(t), &cni{plugin: "bridge", backend: backend, tools: tools, ports: []int{nodePort}}
			b.startVerdict(t)
			n.start(t, b)
			b.expectNodePortOf(t, "cni-0")
			b.restartVerdict(t)
			b.expectNodePortOf(t, "cni-0")
			for _, f := range lab.Families() {
				out := b.Node.Must(t, "", binary, "explain", lab.MustText(f, "X"), lab.AddressPort(f, "NODE", nodePort).String()+"/tcp")
				if !contains(out, "can translate it before Verdict does") {
					t.Errorf("\"verdict explain\" does not name the chain of the host port:\n%s", out)
				}
			}
			n.stop(t, b)
			b.expectNodePortOf(t, "a", "b", "c")
		})
	}
}

// expectNodePortOf asks the node port of the Service "web" from outside: one of these pods answers, and each of them does.
func (b *bed) expectNodePortOf(t *testing.T, pods ...string) {
	t.Helper()
	for _, f := range lab.Families() {
		seen := map[string]bool{}
		for range asks {
			q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f, "NODE", nodePort), Patience: 10 * time.Second}
			r := b.At(t, lab.Outside).Ask(q)
			if r.Outcome != lab.Answered {
				t.Fatalf("%s: %s, want an answer", q, r)
			}
			seen[r.Answer.Pod] = true
		}
		for _, pod := range pods {
			if !seen[pod] || len(seen) != len(pods) {
				t.Errorf("node port in %s: the pods %v answered, want %q", f, seen, pods)
				break
			}
		}
	}
}
