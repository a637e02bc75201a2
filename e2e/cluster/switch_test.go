//go:build e2e

package cluster

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Limits of a switch, as an operator would like it.
const (
	switchLimit = 5 * time.Minute
	backLimit   = time.Minute
)

// TestSwitch does what config/deploy/README.md says: it replaces kube-proxy, as several installers deploy it, and goes back. Clients
// connect all the time and none of them notices. (IPVS, which kubespray and the guide of EKS ask for, is not in every kernel.)
func TestSwitch(t *testing.T) {
	shared.follow(t, "The image")
	for _, from := range []struct {
		installer, mode, chapter string // chapter has the kustomization, unless it is that of kubeadm
	}{
		{"kubeadm", "nftables", ""}, {"kubeadm", "iptables", ""}, {"kubespray", "iptables", ""}, {"eks", "iptables", "EKS"}, {"k3s", "iptables", "k3s"},
	} {
		t.Run(from.installer+"/"+from.mode, func(t *testing.T) {
			shared.kubeProxyOf(t, from.installer, from.mode)
			if from.chapter != "" {
				shared.follow(t, from.chapter)
			}
			if from.installer == "k3s" {
				shared.likeK3s(t)
			}
			l := shared.connect(t)
			there := shared.follow(t, "Replace kube-proxy")
			l.expect(t, "replace kube-proxy", everyone)
			shared.ready(t, "verdict")
			shared.expectTables(t, "verdict")
			shared.warnings(t)
			back := shared.follow(t, "Go back to kube-proxy")
			l.expect(t, "go back to kube-proxy", everyone)
			shared.ready(t, "kube-proxy")
			shared.expectTables(t, from.mode)
			t.Logf("switched in %.0f s (limit %.0f), back in %.0f s (limit %.0f)",
				there.Seconds(), switchLimit.Seconds(), back.Seconds(), backLimit.Seconds())
		})
	}
}

// warnings are what Verdict warned of. Fields without effect are named in one line, and there are no errors.
func (c *cluster) warnings(t *testing.T) {
	t.Helper()
	log := c.must(t, "-n", "kube-system", "logs", "-l", "app.kubernetes.io/name=verdict", "-c", "verdict", "--tail=-1", "--prefix")
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"level":"ERROR"`) {
			t.Error(strings.TrimSpace(line))
		} else if strings.Contains(line, `"level":"WARN"`) {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// likeK3s has the nodes pass connections to 127.0.0.1:6444 on to the API server, and names the ranges of this cluster.
func (c *cluster) likeK3s(t *testing.T) {
	t.Helper()
	file := filepath.Join(c.desk, "my-verdict/kustomization.yaml")
	text, err := os.ReadFile(file)
	lab.Must(t, err)
	lab.Must(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "10.42.0.0/16", podRanges)), 0o644))
	for _, n := range c.nodes {
		var l net.Listener
		lab.Must(t, n.ns.Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:6444"); return err }))
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				client, err := l.Accept()
				if err != nil {
					return
				}
				server, err := n.ns.DialContext(context.Background(), "tcp", net.JoinHostPort(hosts(planeHost)[0].Addr().String(), "6443"))
				if err != nil {
					client.Close()
					continue
				}
				go func() { defer client.Close(); _, _ = io.Copy(client, server) }()
				go func() { defer server.Close(); _, _ = io.Copy(server, client) }()
			}
		}()
	}
}
