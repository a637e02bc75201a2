//go:build e2e

package takeover

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// mode is a mode of kube-proxy.
type mode struct {
	name      string
	proxyMode string
	xtables   string // the program that is iptables; empty: none is needed
	// bare takes all programs away from Verdict: it needs none for this mode.
	bare bool
}

var modes = []mode{
	{name: "nftables", proxyMode: "nftables", bare: true},
	{name: "iptables-nft", proxyMode: "iptables", xtables: "xtables-nft-multi", bare: true},
	{name: "iptables-legacy", proxyMode: "iptables", xtables: "xtables-legacy-multi"},
}

// runs returns how often each test goes there and back: TAKEOVER_RUNS, by default 2.
func runs(t *testing.T) int {
	t.Helper()
	value := os.Getenv("TAKEOVER_RUNS")
	if value == "" {
		return 2
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		t.Fatalf("TAKEOVER_RUNS=%s: must be a number from 1", value)
	}
	return n
}

// TestTakeOver goes from kube-proxy to Verdict and back. Clients connect all the time, and none of them notices. The
// connections that were open in the beginning live on.
func TestTakeOver(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			b, clients := newBed(t), newClients(t)
			upstream := b.kubeProxy(t, &m)
			waitServed(t, b.World, clients)
			open := hold(t, b.World, clients)
			l := startLoops(t, b.World, clients)
			for range runs(t) {
				stop(t, upstream)
				verdict := b.verdict(t, &m)
				expectAlive(t, open, "with Verdict")
				b.expectNoUpstream(t)
				settle()
				stop(t, verdict)
				upstream = b.kubeProxy(t, &m)
				b.Node.Must(t, "", programs.verdict, "cleanup")
				expectAlive(t, open, "with kube-proxy again")
				if list := b.Node.Must(t, "", "nft", "list", "tables"); strings.Contains(list, "verdict") {
					t.Errorf("after the cleanup there are\n%s", list)
				}
				settle()
			}
			l.end(t)
		})
	}
}

// settle lets the clients connect for a moment.
func settle() { time.Sleep(300 * time.Millisecond) }

func stop(t *testing.T, p *lab.Process) {
	t.Helper()
	_ = p.Stop() // kube-proxy has no handler for SIGTERM
	<-p.Exited()
}

// kubeProxy starts upstream's kube-proxy and waits until its rules are in the kernel.
func (b *bed) kubeProxy(t *testing.T, m *mode) *lab.Process {
	t.Helper()
	var env []string
	if m.xtables != "" {
		env = []string{"PATH=" + xtablesPath(t, b.dir, m.xtables)}
	}
	return b.start(t, "kube-proxy", env, []string{
		filepath.Join(programs.controlPlane, "kube-proxy"), "--proxy-mode=" + m.proxyMode, "--metrics-bind-address=127.0.0.1:10249",
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
	}, `"SyncProxyRules complete" ipFamily="IPv4"`, `"SyncProxyRules complete" ipFamily="IPv6"`)
}

// verdict starts Verdict and waits until it has taken over.
func (b *bed) verdict(t *testing.T, m *mode) *lab.Process {
	t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH")}
	if m.bare {
		env = []string{"PATH=/nowhere"}
	}
	return b.start(t, "verdict", env, []string{programs.verdict, "run", "--take-over"}, "took over from kube-proxy")
}

// xtablesPath makes a folder in which iptables is the given program, and returns a search path that begins with it.
func xtablesPath(t *testing.T, dir, program string) string {
	t.Helper()
	multi, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v; install the package iptables", err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink(multi, filepath.Join(bin, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	return bin + ":" + os.Getenv("PATH")
}

// expectNoUpstream expects that nothing of kube-proxy is left. The chain KUBE-FIREWALL is the kubelet's as well.
func (b *bed) expectNoUpstream(t *testing.T) {
	t.Helper()
	list := b.Node.Must(t, "", "nft", "list", "tables")
	rules := b.Node.Must(t, "", "sh", "-c", "iptables-nft-save; ip6tables-nft-save; iptables-legacy-save; ip6tables-legacy-save")
	for line := range strings.Lines(list + rules) {
		if (strings.Contains(line, "KUBE-") || strings.Contains(line, "kube-proxy")) && !strings.Contains(line, "KUBE-FIREWALL") {
			t.Errorf("kube-proxy has left %s", line)
		}
	}
}
