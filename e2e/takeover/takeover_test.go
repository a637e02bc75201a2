//go:build e2e || ipvs

package takeover

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/clients"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// mode is a mode of kube-proxy.
type mode struct {
	name      string
	proxyMode string
	xtables   string // the program that is iptables; empty: none is needed
	// bare takes all programs away from Verdict: it needs none for this mode.
	bare bool
	// flags of Verdict, one list after the other in each run.
	flags [][]string
}

// runs returns how often each test goes there and back: TAKEOVER_RUNS, by default defaultRuns.
func runs(t *testing.T) int {
	t.Helper()
	value := os.Getenv("TAKEOVER_RUNS")
	if value == "" {
		return defaultRuns
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
			b, list := newBed(t), newClients(t)
			upstream := b.kubeProxy(t, &m)
			clients.WaitServed(t, b.World, list)
			open := clients.Hold(t, b.World, list)
			l := clients.Start(t, b.World, list, pause)
			l.Use(open)
			for i := range runs(t) {
				run := fmt.Sprintf("run %d, ", i+1)
				t.Logf("before run %d: %d connections", i+1, l.Asked())
				l.Phase(run + "kube-proxy ends")
				stop(t, upstream)
				l.Phase(run + "Verdict takes over")
				verdict := b.verdict(t, &m, i)
				clients.ExpectAlive(t, open, "with Verdict")
				b.expectNoUpstream(t)
				l.Phase(run + "Verdict serves")
				settle()
				stop(t, verdict)
				l.Phase(run + "kube-proxy starts")
				upstream = b.kubeProxy(t, &m)
				l.Phase(run + "cleanup")
				b.Node.Must(t, "", programs.verdict, "cleanup")
				clients.ExpectAlive(t, open, "with kube-proxy again")
				b.expectNoVerdict(t)
				l.Phase(run + "kube-proxy serves")
				settle()
			}
			l.End(t, b.dir)
		})
	}
}

// settle lets the clients connect for a moment.
func settle() { time.Sleep(300 * time.Millisecond) }

func stop(t testing.TB, p *lab.Process) {
	t.Helper()
	_ = p.Stop() // kube-proxy has no handler for SIGTERM
	<-p.Exited()
}

// synced is what kube-proxy logs when its rules are in the kernel. Its modes differ in the first letter.
const synced = `yncProxyRules complete"`

// kubeProxy starts upstream's kube-proxy and waits until its rules are in the kernel.
func (b *bed) kubeProxy(t testing.TB, m *mode, flags ...string) *lab.Process {
	t.Helper()
	var env []string
	if m.xtables != "" {
		env = []string{"PATH=" + xtablesPath(t, b.dir, m.xtables)}
	}
	return b.start(t, "kube-proxy", env, append([]string{
		filepath.Join(programs.controlPlane, "kube-proxy"), "--proxy-mode=" + m.proxyMode, "--metrics-bind-address=127.0.0.1:10249",
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
	}, flags...), synced+` ipFamily="IPv4"`, synced+` ipFamily="IPv6"`)
}

// verdict starts Verdict and waits until it has taken over.
func (b *bed) verdict(t testing.TB, m *mode, run int) *lab.Process {
	t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH")}
	if m.bare {
		env = []string{"PATH=/nowhere"}
	}
	command := []string{programs.verdict, "run", "--take-over"}
	if len(m.flags) > 0 {
		command = append(command, m.flags[run%len(m.flags)]...)
	}
	return b.start(t, "verdict", env, command, "took over from kube-proxy")
}

// xtablesPath makes a folder in which iptables is the given program, and returns a search path that begins with it.
func xtablesPath(t testing.TB, dir, program string) string {
	t.Helper()
	multi, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v; install the package iptables", err)
	}
	bin := filepath.Join(dir, "bin")
	lab.Must(t, os.MkdirAll(bin, 0o755))
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
	rules := b.Node.Must(t, "", "sh", "-c", "iptables-nft-save; ip6tables-nft-save; iptables-legacy-save; ip6tables-legacy-save; "+
		"ip -o link; ! command -v ipset >/dev/null || ipset list -n")
	for line := range strings.Lines(list + rules) {
		if (strings.Contains(line, "KUBE-") || strings.Contains(line, "kube-proxy") || strings.Contains(line, "kube-ipvs0")) && !strings.Contains(line, "KUBE-FIREWALL") {
			t.Errorf("kube-proxy has left %s", line)
		}
	}
}

// expectNoVerdict expects that nothing of Verdict is left.
func (b *bed) expectNoVerdict(t *testing.T) {
	t.Helper()
	if list := b.Node.Must(t, "", "nft", "list", "tables"); strings.Contains(list, "verdict") {
		t.Errorf("after the cleanup there are\n%s", list)
	}
	if list := b.Node.Must(t, "", "sh", "-c", "ip route show table local proto 118; ip -6 route show table local proto 118"); list != "" {
		t.Errorf("after the cleanup there are the routes\n%s", list)
	}
}
