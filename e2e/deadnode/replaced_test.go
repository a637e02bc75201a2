//go:build e2e || ipvs

package deadnode

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestEndpointReplaced has a client repeat its first packet to the only endpoint, which drops it. The slice then names another
// one, and the client reaches that with the same connection.
func TestEndpointReplaced(t *testing.T) {
	for _, e := range engines {
		for _, f := range lab.Families() {
			t.Run(e.name+"/"+f.String(), func(t *testing.T) { endpointReplaced(t, &e, f) })
		}
	}
}

func endpointReplaced(t *testing.T, e *engine, f lab.Family) {
	silent := []place{{"c", 8080, lab.RemoteNodeName}}
	b := newBedAfter(t, func(b *bed) { b.rule("c", "input", 0, "meta l4proto tcp drop") },
		`verdict-proxy.github.io/outlier-detection: "off"`+e.annotation, silent, e.flags...)
	done := make(chan lab.Result)
	go func() {
		done <- b.At(t, lab.Outside).Ask(lab.Question{Protocol: lab.TCP, To: vip(f), Patience: time.Minute})
	}()
	b.tracked(f)
	b.slices([]place{{"a", 8080, lab.NodeName}})
	r := <-done
	if t.Logf("%s after %d repetitions", r, r.Repeated); r.Answer.Pod != "a" {
		t.Errorf("%s, want pod a", r)
	}
}

// tracked waits until the node tracks a connection to the Service.
func (b *bed) tracked(f lab.Family) {
	b.t.Helper()
	lab.Eventually(b.t, "the node tracks a connection", func() error {
		flows, err := b.Node.Flows(f)
		if err == nil && !slices.ContainsFunc(flows, func(flow lab.TrackedFlow) bool { return flow.To == vip(f) }) {
			err = errors.New("none")
		}
		return err
	})
}
