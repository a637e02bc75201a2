//go:build e2e

package deadnode

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestAffinity: a client that belongs to an endpoint moves when that endpoint dies, as it does when the endpoint is
// removed. It belongs to the next one from then on.
func TestAffinity(t *testing.T) {
	endpoints := []place{{"a", 8080, lab.NodeName}, {"b", 8080, "node-3"}, {"c", 8080, lab.RemoteNodeName}}
	b := newBed(t, eject, endpoints)
	b.untilAsked(endpoints)
	b.write("service.yaml", strings.Replace(service(eject), "spec:\n", "spec:\n  sessionAffinity: ClientIP\n", 1))
	first := b.home()
	b.rule(first, "input", 0, "drop")
	b.eventually("the connection goes elsewhere", works)
	b.waitFor("an endpoint does not answer")
	if next := b.home(); next == first {
		t.Errorf("the client still belongs to pod %s, which is dead", first)
	}
}

// home waits until one pod answers a client again and again, and returns it. Without affinity, that would not happen in years.
func (b *bed) home() (pod string) {
	b.t.Helper()
	q := lab.Question{Protocol: lab.TCP, To: vip(lab.IPv4), Patience: 30 * time.Second}
	lab.Eventually(b.t, "one pod answers the client", func() error {
		for i := range 20 {
			r := b.At(b.t, lab.Outside).Ask(q)
			if r.Outcome != lab.Answered {
				b.t.Fatalf("connection %d is %s", i+1, r)
			}
			if i > 0 && r.Answer.Pod != pod {
				return fmt.Errorf("connection %d, after those to pod %q, goes to pod %q", i+1, pod, r.Answer.Pod)
			}
			pod = r.Answer.Pod
		}
		return nil
	})
	return pod
}
