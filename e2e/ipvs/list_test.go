//go:build ipvs

package ipvs

import (
	"strings"
	"testing"
)

// TestList compares "verdict list" with ipvsadm. The README shows its output.
func TestList(t *testing.T) { each(t, []test{{"beside ipvsadm", hybrid(), listBesideIpvsadm}}) }

func listBesideIpvsadm(b *bed) {
	b.serve("wlc", "ports: [{name: http, port: 80}]")
	b.steps(`
apply
    kind: Service
    metadata: {name: plain}
    spec: {clusterIPs: [$VIP2], ports: [{name: http, port: 80}]}
`)
	b.steps("endpoints web a b c")
	b.settled("endpoints plain b c")
	for range 5 {
		b.hold("x", b.at(80))
	}
	for range 3 {
		b.once("x", b.at(80))
	}
	ours, theirs := b.node(verdict().Binary, "list"), b.node("ipvsadm", "-Ln")
	b.Logf("verdict list\n%s\nipvsadm -Ln\n%s", ours, theirs)
	for line := range strings.Lines(theirs) {
		w := strings.Fields(line)
		if len(w) != 6 || w[0] != "->" || w[2] != "Masq" {
			continue
		}
		want := strings.Join([]string{w[0], w[1], w[3], w[4], w[5]}, " ")
		if !hasLine(ours, want) {
			b.Errorf("verdict list has no line %q", want)
		}
	}
	for _, want := range []string{"default/web:http", "default/plain:http"} {
		if !strings.Contains(ours, want) {
			b.Errorf("verdict list does not name %s", want)
		}
	}
}

// hasLine compares words, not blanks.
func hasLine(text, want string) bool {
	for line := range strings.Lines(text) {
		if strings.Join(strings.Fields(line), " ") == want {
			return true
		}
	}
	return false
}
