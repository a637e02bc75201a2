//go:build e2e

package deadnode

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestAffinity: a client that belongs to an endpoint moves when that endpoint dies, as it does when the endpoint is
// removed. It belongs to the next one from then on.
func TestAffinity(t *testing.T) {
	endpoints := []place{{"a", 8080, lab.NodeName}, {"b", 8080, "node-3"}, {"c", 8080, lab.RemoteNodeName}}
	b := newBed(t, eject, endpoints)
	b.untilAsked(endpoints)
	before := b.passes()
	b.write("service.yaml", strings.Replace(service(eject), "spec:\n", "spec:\n  sessionAffinity: ClientIP\n", 1))
	b.eventually("the Service gets affinity", func(rate.Outcome) bool { return b.passes() > before })
	first := b.home()
	b.rule(first, "input", 0, "drop")
	b.eventually("the connection goes elsewhere", works)
	b.waitFor("an endpoint does not answer")
	if next := b.home(); next == first {
		t.Errorf("the client still belongs to pod %s, which is dead", first)
	}
}

// passes is how many passes the daemon has applied.
func (b *bed) passes() int { return strings.Count(b.process.Log(100_000), `msg="pass applied"`) }

// home returns the pod that answers a client again and again.
func (b *bed) home() (pod string) {
	b.t.Helper()
	q := lab.Question{Protocol: lab.TCP, To: vip(lab.IPv4), Patience: 30 * time.Second}
	for i := range 20 {
		r := b.At(b.t, lab.Outside).Ask(q)
		if r.Outcome != lab.Answered || i > 0 && r.Answer.Pod != pod {
			b.t.Fatalf("connection %d, after those to pod %q: %v", i+1, pod, r)
		}
		pod = r.Answer.Pod
	}
	return pod
}
