//go:build e2e

package neighbors

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// way is one way to reach a Service, and what must happen to its connections.
type way struct {
	name       string
	place      string
	to         string // a name of the lab's addresses
	port       uint16
	pods       []string // that may answer
	masquerade bool     // the pod sees an address of the node; otherwise it sees the client's
	same       bool     // one pod answers all connections
}

// ways are those of each Service. Pod "host" is the server in the node's own network.
func ways() []way {
	web, local := []string{"a", "b", "c"}, []string{"a"}
	return []way{
		{name: "cluster IP from a pod", place: "d", to: "VIP1", port: servicePort, pods: web},
		{name: "cluster IP from the node", place: lab.Node, to: "VIP1", port: servicePort, pods: web, masquerade: true},
		{name: "node port", place: lab.Outside, to: "NODE", port: nodePort, pods: web, masquerade: true},
		{name: "load-balancer IP", place: lab.Outside, to: "LB1", port: servicePort, pods: web, masquerade: true},
		{name: "external IP", place: lab.Outside, to: "EXT1", port: servicePort, pods: web, masquerade: true},
		{name: "node port, policy Local", place: lab.Outside, to: "NODE", port: localNodePort, pods: local},
		{name: "load-balancer IP, policy Local", place: lab.Outside, to: "LB2", port: servicePort, pods: local},
		{name: "affinity", place: "d", to: "VIP3", port: servicePort, pods: web, same: true},
		{name: "hairpin", place: "b", to: "VIP4", port: servicePort, pods: []string{"b"}, masquerade: true},
	}
}

// asks is how many connections are made for each way. Of three endpoints, one gets none of 40 in one of 10^7 runs.
const asks = 40

// expectServed tries all ways, in both families, over TCP and UDP.
func (b *bed) expectServed(t *testing.T, when string) {
	t.Helper()
	for _, f := range lab.Families() {
		for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
			for _, w := range ways() {
				b.expectWay(t, when, f, protocol, &w)
			}
		}
	}
}

func (b *bed) expectWay(t *testing.T, when string, f lab.Family, protocol lab.Protocol, w *way) {
	t.Helper()
	seen := map[string]bool{}
	for range asks {
		q := lab.Question{Protocol: protocol, To: lab.AddressPort(f, w.to, w.port), Patience: 10 * time.Second}
		r := b.At(t, w.place).Ask(q)
		if r.Outcome != lab.Answered || !slices.Contains(w.pods, r.Answer.Pod) {
			t.Errorf("%s: %s: %s from %s: %s, want an answer of one of %q", when, w.name, q, w.place, r, w.pods)
			return
		}
		if kept := r.Answer.Source == r.Client; kept == w.masquerade && w.place != lab.Node && !b.masqueraded(w.place, r.Answer.Pod) {
			t.Errorf("%s: %s: %s from %s: pod %s sees %s, and the client used %s; masqueraded: %t, want %t", when, w.name, q,
				w.place, r.Answer.Pod, r.Answer.Source, r.Client, !kept, w.masquerade)
			return
		}
		seen[r.Answer.Pod] = true
	}
	if w.same && len(seen) != 1 {
		t.Errorf("%s: %s: %d pods answered one client, want 1", when, w.name, len(seen))
	}
	if !w.same && len(seen) != len(w.pods) {
		t.Errorf("%s: %s: of the pods %q, only %v answered %d connections", when, w.name, w.pods, seen, asks)
	}
}

// masqueraded reports whether the neighbor masquerades packets between two pods of the remote node. Only in the lab do these
// pass the node.
func (b *bed) masqueraded(place, pod string) bool {
	return b.masqueradesRemote && lab.NodeOf(place) == lab.RemoteNodeName && lab.NodeOf(pod) == lab.RemoteNodeName
}

// expectUpdates removes an endpoint and adds it again: the next connections follow.
func (b *bed) expectUpdates(t *testing.T, when string) {
	t.Helper()
	b.endpoints(t, "c")
	b.expectPods(t, when, "c")
	b.endpoints(t, "a", "b", "c")
	b.expectPods(t, when, "a", "b", "c")
}

// expectPods waits until the daemon has written the endpoints, and expects answers from no other pod.
func (b *bed) expectPods(t *testing.T, when string, pods ...string) {
	t.Helper()
	b.verdict.WaitFor(t, "a pass with the change", func(*socket.Status) bool { return b.kernelHas(t, pods...) })
	for range asks {
		r := b.At(t, "d").Ask(lab.Question{Protocol: lab.TCP, To: lab.AddressPort(lab.IPv4, "VIP1", servicePort), Patience: 10 * time.Second})
		if r.Outcome != lab.Answered || !slices.Contains(pods, r.Answer.Pod) {
			t.Errorf("%s: after a change: %s, want an answer of one of %q", when, r, pods)
		}
	}
}

// kernelHas reports whether "verdict list" shows just these endpoints of the Service "web".
func (b *bed) kernelHas(t *testing.T, pods ...string) bool {
	t.Helper()
	out := b.Node.Must(t, "", binary, "list", "shop/web", "--output=json")
	for _, pod := range lab.Pods() {
		at := fmt.Sprintf("%q", lab.PodAddress(lab.IPv4, pod))
		if contains(out, at) != slices.Contains(pods, pod) {
			return false
		}
	}
	return true
}
