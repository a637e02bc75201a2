//go:build e2e

package cluster

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestPlugin asks both nodes by "kubectl verdict". A node whose kubelet stands still and a node whose table somebody edited are
// named; --timeout bounds how long that takes.
func TestPlugin(t *testing.T) {
	c := shared
	c.verdict(t)
	plugin := filepath.Join(c.dir, "kubectl-verdict")
	if out, err := exec.Command("go", "build", "-o", plugin, "../../cmd/kubectl-verdict").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ask := func(args ...string) string {
		began := time.Now()
		out, err := c.place.Command(plugin, append([]string{"--kubeconfig", c.kubeconfig, "--timeout=5s"}, args...)...)
		t.Logf("kubectl verdict %s (%s):\n%s", strings.Join(args, " "), time.Since(began).Round(time.Millisecond), out)
		if err != nil {
			out += err.Error()
		}
		return out
	}
	says := func(out string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("this does not say %q:\n%s", w, out)
			}
		}
	}
	lab.Must(t, eventually("no node differs", func() error {
		if out := ask("diff"); !strings.Contains(out, "all 2 nodes: as wanted") {
			return errors.New(out)
		}
		return nil
	}))
	says(ask("list", "--", "default/web"), "default/web:tcp")
	says(ask("top"), "Conn/s")
	says(ask("version"), "all 2 nodes:")
	says(ask("explain", "outside", "service/web:tcp"), "all 2 nodes:")
	pod := c.must(t, "get", "pod", "-l", "app=client", "-o", "jsonpath={.items[0].metadata.name}")
	says(ask("explain", "pod/"+pod, "service/web:tcp"), "the node of "+pod, "goes to one of", "is on the same node")

	// Otherwise the kernel refuses to edit a table that has an owner (Linux 6.9).
	c.must(t, "-n", "kube-system", "patch", "daemonset", "verdict", "--type=json", "-p",
		`[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--table-owner=off"}]`)
	c.ready(t, "verdict")
	stopped, edited := c.nodes[0], c.nodes[1]
	suspend := func(n *node, program string) {
		pids, err := n.processes(program)
		lab.Must(t, err)
		for _, pid := range pids {
			lab.Must(t, lab.Suspend(pid))
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // the kubelet may have ended what does not answer its probes
		}
		if len(pids) == 0 {
			t.Fatalf("no process %s runs on %s", program, n.name())
		}
	}
	suspend(stopped, "kubelet")
	suspend(edited, "verdict") // otherwise it repairs the table at once
	_, err := edited.ns.Command("nft", "flush", "set", "ip", "verdict", "cluster-ips")
	lab.Must(t, err)
	says(ask("diff"), stopped.name()+" does not answer", edited.name()+" differs from what is wanted; its daemon does not answer", "add element ip verdict cluster-ips")
}
