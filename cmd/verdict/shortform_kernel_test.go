//go:build !nokernel

package main

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestShortForm sends connections through balancers of the short form: one masquerades, and one does not, so its endpoints
// see the client. An endpoint reaches itself through either. A backup gets nothing.
func TestShortForm(t *testing.T) {
	w, dir := lab.New(t), t.TempDir()
	for name, masquerade := range map[string]bool{"LB1": true, "LB2": false} {
		writeManifest(t, dir, name+".yaml", fmt.Sprintf(`apiVersion: verdict-proxy.github.io/v1alpha1
kind: LoadBalancer
metadata: {name: web-%t}
spec:
  addresses: [%s, "%s"]
  ports: [{port: 80, targetPort: 8080, protocols: [TCP, UDP]}]
  endpoints:
  - address: %s
  - address: %s
    backup: true
  - address: %s
  masquerade: %[1]t
`, masquerade, lab.Address(lab.IPv4, name), lab.Address(lab.IPv6, name), lab.Address(lab.IPv4, "C"), lab.Address(lab.IPv4, "D"), lab.Address(lab.IPv6, "C")))
	}
	runDaemon(t, w.Node.Namespace, dir)
	client := w.At(t, lab.Outside)
	for _, f := range lab.Families() {
		for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
			for name, masquerade := range map[string]bool{"LB1": true, "LB2": false} {
				t.Run(fmt.Sprintf("%s/%s/%s", f, protocol, name), func(t *testing.T) {
					q := lab.Question{Protocol: protocol, To: netip.AddrPortFrom(lab.Address(f, name), 80), Patience: 5 * time.Second}
					for range 5 {
						answer := client.Once(t, q)
						if own := answer.Source == lab.Address(f, "X"); answer.Pod != "c" || own == masquerade {
							t.Errorf("pod %s answers and sees %s", answer.Pod, answer.Source)
						}
					}
					if answer := w.At(t, "c").Once(t, q); answer.Pod != "c" {
						t.Errorf("pod %s answers pod c", answer.Pod)
					}
				})
			}
		}
	}
}
