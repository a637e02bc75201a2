//go:build e2e

package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/load"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestVanish cuts the link of a node with 2 of the 4 servers. A client on the other node makes 4 connections a second to
// the cluster IP, and waits 5 seconds for each.
func TestVanish(t *testing.T) {
	c := shared
	t.Run("kube-proxy", func(t *testing.T) {
		c.kubeProxy(t, "nftables")
		if n := c.vanish(t); n == 0 {
			t.Error("no connection failed: the test did not cut the link")
		}
	})
	t.Run("verdict", func(t *testing.T) {
		c.verdict(t)
		c.must(t, "-n", "kube-system", "patch", "daemonset", "verdict", "--type", "json",
			"-p", `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--outlier-detection=eject"}]`)
		c.ready(t, "verdict")
		if n := c.vanish(t); n > 0 {
			t.Errorf("%d connections failed, want none", n)
		}
	})
}

const (
	vanishRate = 4
	// gone is how long the link is cut: longer than the 50 s until Kubernetes takes the pods out of the EndpointSlices.
	gone = 75 * time.Second
)

// vanish cuts the link of node 2 and returns how many connections from node 1 failed.
func (c *cluster) vanish(t *testing.T) (failed int) {
	t.Helper()
	l := c.connect(t)
	l.outside.Stop()
	client, lost := c.nodes[0], c.nodes[1]
	vip := strings.TrimSpace(c.must(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"))
	target := load.Target{Protocol: lab.TCP, Family: lab.IPv4, Host: vip, Port: "80"}
	loops := load.Start([]load.Target{target}, load.Options{Pause: time.Second / vanishRate, Patience: clientPatience, Open: client.ns.Open})
	if err := c.place.SetDown(lost.port()); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	time.Sleep(gone)
	loops.Stop()
	if err := c.place.SetUp(lost.port()); err != nil {
		t.Fatal(err)
	}
	got := loops.Counts()[target.String()]
	t.Logf("%d connections, %d failed, the last of these began %.0f s after the cut; the slowest took %s",
		got.Asked, got.Failed, max(0, got.LastFailure.Sub(cut).Seconds()), got.Slowest.Round(time.Millisecond))
	for _, f := range got.Failures {
		t.Log(f)
	}
	c.must(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
	return got.Failed
}
