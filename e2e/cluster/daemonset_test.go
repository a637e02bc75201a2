//go:build e2e

package cluster

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestDaemonSet restarts, upgrades and kills Verdict, and reboots a node. Clients connect all the time.
func TestDaemonSet(t *testing.T) {
	c := shared
	c.verdict(t)
	l := c.connect(t)
	for _, step := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"rollout restart", func(t *testing.T) { c.must(t, "-n", "kube-system", "rollout", "restart", "daemonset", "verdict") }},
		{"upgrade", c.upgrade},
		{"process killed", c.kill},
		{"pods deleted", func(t *testing.T) {
			c.must(t, "-n", "kube-system", "delete", "pod", "-l", "app.kubernetes.io/name=verdict", "--now")
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.do(t)
			c.ready(t, "verdict")
			l.expect(t, step.name, everyone)
			c.expectTables(t, "verdict")
		})
	}
	t.Run("node rebooted", func(t *testing.T) { c.reboot(t, l) })
}

// upgrade makes an image with another version, and follows the README.
func (c *cluster) upgrade(t *testing.T) {
	t.Helper()
	if err := c.obey(block{"make image IMAGE=registry.example/verdict:v2 VERSION=v2"}); err != nil {
		t.Fatal(err)
	}
	if err := c.obey(block{onNode + "ctr -n k8s.io images import bin/verdict-image.tar"}); err != nil {
		t.Fatal(err)
	}
	c.follow(t, "Upgrade")
	if got := c.must(t, "-n", "kube-system", "get", "daemonset", "verdict", "-o", "jsonpath={..image}"); strings.Contains(got, ":v1") {
		t.Errorf("after the upgrade the DaemonSet has the images %s", got)
	}
}

// kill kills the process on each node, and waits until the kubelet has started it again.
func (c *cluster) kill(t *testing.T) {
	t.Helper()
	for _, n := range c.nodes {
		before := c.restarts(t, n)
		pids, err := n.processes("verdict")
		if err != nil || len(pids) != 1 {
			t.Fatalf("%s has processes %v of Verdict, want one: %v", n.name(), pids, err)
		}
		lab.Must(t, syscall.Kill(pids[0], syscall.SIGKILL))
		err = eventually("the kubelet starts Verdict again", func() error {
			if now := c.restarts(t, n); now == before {
				return fmt.Errorf("on %s it has been started %s times", n.name(), now)
			}
			return nil
		})
		lab.Must(t, err)
	}
}

// settled is how many connections of each client must succeed in a row after a reboot. Before that, EndpointSlices have
// addresses of pods that the node has given to others.
const settled = 100

// reboot ends all processes of a node, empties its kernel and starts it again. Clients on the other node that connect to
// servers there notice nothing. Afterwards, everything works again.
func (c *cluster) reboot(t *testing.T, l *clients) {
	t.Helper()
	rebooted, other := c.nodes[0], c.nodes[1]
	l.asked = []*node{other}
	l.begin(t)
	lab.Must(t, rebooted.end())
	lab.Must(t, rebooted.forget())
	lab.Must(t, rebooted.start())
	l.asked = c.nodes
	l.awaitAnswered(t, settled)
	c.ready(t, "verdict")
	c.expectTables(t, "verdict")
	l.asked = []*node{other}
	l.expect(t, "node rebooted", func(name string) bool {
		return strings.HasPrefix(name, other.name()+": ") && strings.Contains(name, "near")
	})
	l.asked = c.nodes
	l.begin(t)
	l.expect(t, "after the reboot", everyone)
}
