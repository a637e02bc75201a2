package explain

import (
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/inspect"
)

// TestLeftover: explain blames kube-proxy for its own chains. The kubelet, k3s and kube-router have chains KUBE-*, too.
func TestLeftover(t *testing.T) {
	for chain, blames := range map[string]bool{
		"KUBE-SERVICES": true, "KUBE-SEP-ABCDEF": true, "KUBE-PROXY-FIREWALL": true, "KUBE-EXTERNAL-SERVICES": true,
		"KUBE-FIREWALL": false, "KUBE-KUBELET-CANARY": false, "KUBE-ROUTER-FORWARD": false, "KUBE-POD-FW-ABCDEF": false, "KUBE-NWPLCY-DEFAULT": false,
	} {
		of := []inspect.ForeignRule{{Chain: chain}}
		for what, c := range map[string]inspect.ForeignChain{"stops": {Stops: of}, "translates": {Translates: of}} {
			if text := leftover(&c); strings.Contains(text, "kube-proxy") != blames {
				t.Errorf("%s %s: %q", chain, what, text)
			}
		}
	}
}
