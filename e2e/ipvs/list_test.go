//go:build ipvs

package ipvs

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestList compares "verdict list" with ipvsadm. README.md and cmd/verdict/README.md show its output.
func TestList(t *testing.T) { each(t, []test{{"beside ipvsadm", hybrid(), listBesideIpvsadm}}) }

// TestDiff compares the kernel with manifests, where IPVS serves a Service: first all is the same, then another program
// has taken a real server away.
func TestDiff(t *testing.T) {
	each(t, []test{{"virtual servers", append(hybrid(), "--repair=false"), diffOfVirtualServers}})
}

func diffOfVirtualServers(b *bed) {
	b.serve("wlc", "ports: [{name: http, port: 80}]")
	b.settled("endpoints web a b")
	// An exit code of 1 would end a plain command of the bed.
	diff := strings.Join(append([]string{
		verdict().Binary, "diff", "--manifests", filepath.Join(b.dir, "manifests"), "--hostname-override", lab.NodeName,
		"--cluster-cidr", strings.Join(lab.Both("PODS"), ","),
	}, hybrid()...), " ") + "; echo exit code $?"
	if got := b.node("sh", "-c", diff); !strings.HasSuffix(got, "exit code 0\n") {
		b.Errorf("diff of what the daemon has written:\n%s", got)
	}
	at, end := netip.AddrPortFrom(b.vip, 80).String(), netip.AddrPortFrom(lab.PodAddress(b.family, "b"), 8080).String()
	got := b.node("sh", "-c", "ipvsadm -d -t "+at+" -r "+end+" && "+diff)
	want := "# ipvsadm -a -t " + at + " -r " + end
	if !strings.Contains(got, want) || !strings.HasSuffix(got, "exit code 1\n") || strings.Contains(got, " -d ") {
		b.Errorf("diff without a real server lacks %q:\n%s", want, got)
	}
}

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
