//go:build e2e

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// trace writes what is needed to explain each failed connection into a folder: the events of connection tracking on both
// nodes, which say to which endpoint each first packet of a source port went, and the changes of the pods and EndpointSlices.
func (c *cluster) trace(b *testing.B, proxy, dir string) {
	b.Helper()
	if proxy == "verdict" {
		c.must(b, "-n", "kube-system", "patch", "daemonset", "verdict", "--type", "json",
			"-p", `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "-v=4"}]`)
		c.ready(b, proxy)
	}
	watch := []string{c.program("kubectl"), "--kubeconfig", c.kubeconfig, "get", "-w", "--output-watch-events", "-o", "json"}
	c.traced(b, dir, proxy+"-slices", c.place, append(watch, "endpointslices", "-l", "kubernetes.io/service-name=roll")...)
	c.traced(b, dir, proxy+"-pods", c.place, append(watch, "pods", "-l", "app=roll")...)
	for _, n := range c.nodes {
		for _, family := range []string{"ipv4", "ipv6"} {
			c.traced(b, dir, fmt.Sprintf("%s-flows-%d-%s", proxy, n.number, family), n.ns,
				"conntrack", "-E", "-e", "NEW", "-f", family, "-p", "tcp", "-o", "timestamp", "-b", "33554432")
		}
	}
}

func (c *cluster) traced(b *testing.B, dir, name string, ns *lab.Namespace, command ...string) {
	b.Helper()
	lab.Must(b, os.RemoveAll(filepath.Join(dir, name+".log")))
	p, err := lab.NewProcess(lab.ProcessOptions{Name: name, Namespace: ns, Dir: dir, Command: command})
	lab.Must(b, err)
	b.Cleanup(func() {
		if err := p.Kill(); err != nil {
			b.Error(err)
		}
	})
}

// keepLogs writes the logs of the proxy on each node into the folder.
func (c *cluster) keepLogs(b *testing.B, proxy, dir string) {
	b.Helper()
	for _, n := range c.nodes {
		log, err := n.output("sh", "-c", "cat /var/log/pods/kube-system_"+proxy+"-*/"+proxy+"/*.log")
		lab.Must(b, err)
		lab.Must(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-log-%d.log", proxy, n.number)), []byte(log), 0o644))
	}
}
