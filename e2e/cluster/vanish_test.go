//go:build e2e

package cluster

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
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
	c.connect(t)
	node, lost := c.nodes[0], c.nodes[1]
	vip := strings.TrimSpace(c.must(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"))
	client := &rate.Client{
		Targets: []*rate.Target{{Network: "tcp", Address: net.JoinHostPort(vip, "80")}}, PerSecond: vanishRate, Patience: clientPatience,
		Do: node.ns.Do,
	}
	stop := client.Start()
	lab.Must(t, c.place.SetDown(lost.port()))
	cut := time.Now()
	time.Sleep(gone)
	got := stop()
	lab.Must(t, c.place.SetUp(lost.port()))
	var lastFailure, slowest time.Duration
	for _, a := range got {
		slowest = max(slowest, a.Took)
		established := a.Began.Before(cut) && a.Handshake > 0 // with a server that is gone: no proxy can save it
		if a.Outcome != rate.Answered && !established {
			failed++
			lastFailure = max(lastFailure, a.Began.Sub(cut))
			t.Logf("%s %s %s", a.Began.UTC().Format("15:04:05.000"), a.Outcome, a.Error)
		}
	}
	t.Logf("%d connections, %d failed, the last of these began %.0f s after the cut; the slowest took %s",
		len(got), failed, lastFailure.Seconds(), slowest.Round(time.Millisecond))
	c.must(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
	return failed
}
