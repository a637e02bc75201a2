//go:build e2e

package cluster

import (
	"testing"
	"time"
)

// Limits of a switch, as an operator would like it.
const (
	switchLimit = 5 * time.Minute
	backLimit   = time.Minute
)

// TestSwitch does what config/deploy/README.md says: it replaces kube-proxy, and goes back. Clients connect all the time
// and none of them notices.
func TestSwitch(t *testing.T) {
	shared.follow(t, "The image")
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			shared.kubeProxy(t, mode)
			l := shared.connect(t)
			there := shared.follow(t, "Replace kube-proxy")
			l.expect(t, "replace kube-proxy", everyone)
			shared.ready(t, "verdict")
			shared.expectTables(t, "verdict")
			back := shared.follow(t, "Go back to kube-proxy")
			l.expect(t, "go back to kube-proxy", everyone)
			shared.ready(t, "kube-proxy")
			shared.expectTables(t, mode)
			t.Logf("switched in %.0f s (limit %.0f), back in %.0f s (limit %.0f)",
				there.Seconds(), switchLimit.Seconds(), back.Seconds(), backLimit.Seconds())
		})
	}
}
