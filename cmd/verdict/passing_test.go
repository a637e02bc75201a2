//go:build !nokernel

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// passer is the place of the test: Services near and far, whose endpoints are on this node and on the other one.
type passer struct {
	*testing.T
	*lab.World
	daemon *daemonProcess
	dir    string
}

func newPasser(t *testing.T, flags ...string) *passer {
	p := &passer{T: t, World: lab.New(t), dir: t.TempDir()}
	writeManifest(t, p.dir, "node.yaml", node(""))
	for i, pod := range map[int]string{1: "a", 2: "c"} {
		writeManifest(t, p.dir, pod+".yaml", fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: to-%[2]s, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.1%[1]d
  clusterIPs: [10.96.0.1%[1]d]
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 3008%[1]d}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: to-%[2]s, namespace: default, labels: {kubernetes.io/service-name: to-%[2]s}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [%[3]s], nodeName: %[4]s}]
`, i, pod, lab.PodAddress(lab.IPv4, pod), lab.NodeOf(pod)))
	}
	flags = append([]string{"--cluster-cidr=10.0.0.0/16", "--hostname-override=" + lab.NodeName, "--healthz-bind-address=127.0.0.1:10256",
		"--metrics-bind-address=127.0.0.1:10249"}, flags...)
	p.daemon = runDaemon(t, p.Node.Namespace, p.dir, flags...)
	return p
}

// node is the Node object of this node, with taints.
func node(taints string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\nspec: {podCIDRs: [10.0.1.0/24], taints: [%s]}\n"+
		"status: {addresses: [{type: InternalIP, address: %s}]}\n", lab.NodeName, taints, lab.Address(lab.IPv4, "NODE"))
}

// The node port or the cluster IP of a Service.
func (p *passer) nodePort(pod string) netip.AddrPort {
	return netip.AddrPortFrom(lab.Address(lab.IPv4, "NODE"), map[string]uint16{"a": 30081, "c": 30082}[pod])
}

func clusterIP(pod string) netip.AddrPort {
	return netip.MustParseAddrPort(map[string]string{"a": "10.96.0.11:80", "c": "10.96.0.12:80"}[pod])
}

// hold opens connections.
func (p *passer) hold(n int, from string, to netip.AddrPort) (list []*lab.Flow) {
	p.Helper()
	for range n {
		f, _ := p.At(p.T, from).Hold(p.T, lab.Question{Protocol: lab.TCP, To: to, Patience: 10 * time.Second})
		list = append(list, f)
	}
	return list
}

// TestOpenConnections: top, list and the metrics show the open connections through the node by who their clients are and where their
// endpoints are.
func TestOpenConnections(t *testing.T) {
	p := newPasser(t)
	p.hold(3, "x", p.nodePort("c"))
	p.hold(2, "x", p.nodePort("a"))
	p.hold(1, "x", clusterIP("c")) // routed: masqueraded, so it is no pod
	p.hold(1, "b", clusterIP("c"))
	p.hold(2, "b", p.nodePort("c"))
	p.hold(1, "b", clusterIP("a"))
	p.hold(1, lab.Node, clusterIP("c"))
	p.hold(1, "x", clusterIP("a"))[0].Close()
	want := []socket.Passing{
		{Service: "default/to-a:http", Client: "outside", Endpoint: "here", Open: 2},
		{Service: "default/to-a:http", Client: "pod", Endpoint: "here", Open: 1},
		{Service: "default/to-c:http", Client: "node", Endpoint: "elsewhere", Open: 1},
		{Service: "default/to-c:http", Client: "outside", Endpoint: "elsewhere", Open: 4},
		{Service: "default/to-c:http", Client: "pod", Endpoint: "elsewhere", Open: 3},
	}
	var list struct{ Open []socket.Passing }
	var top struct {
		Rows []struct {
			Service string
			Open    []socket.Passing
		}
	}
	for _, read := range []struct {
		into any
		args []string
	}{{&list, []string{"list", "-o", "json"}}, {&top, []string{"top", "--interval=100ms", "--sort=name", "-o", "json"}}} {
		_, stdout, stderr := inside(t, p.Node.Namespace, read.args...)
		if err := json.Unmarshal([]byte(stdout), read.into); err != nil {
			t.Fatalf("%v: %v: %s%s", read.args, err, stdout, stderr)
		}
	}
	if !slices.Equal(list.Open, want) {
		t.Errorf("list has %v", list.Open)
	}
	var rows []socket.Passing
	for _, r := range top.Rows {
		rows = append(rows, r.Open...)
	}
	if !slices.Equal(rows, want) {
		t.Errorf("top has %v", rows)
	}
	if _, text, _ := inside(t, p.Node.Namespace, "list", "default/to-c"); !strings.Contains(text, "Through this node, clients outside have 4 open connections to endpoints on other nodes\n") {
		t.Errorf("list prints\n%s", text)
	}
	if _, text, _ := inside(t, p.Node.Namespace, "top", "--once", "--interval=100ms", "default/to-c"); !strings.Contains(text, "Stranded\n") || !strings.Contains(text, "        4\n") {
		t.Errorf("top prints\n%s", text)
	}
	lab.Eventually(t, "metrics", func() error {
		text := p.Node.Must(t, "", "curl", "-fsS", "http://127.0.0.1:10249/metrics")
		for _, row := range want {
			service, _ := strings.CutPrefix(strings.TrimSuffix(row.Service, ":http"), "default/")
			if line := fmt.Sprintf("verdict_service_open_connections{client=%q,endpoint=%q,namespace=\"default\",port=\"http\",service=%q} %d\n",
				row.Client, row.Endpoint, service, row.Open); !strings.Contains(text, line) {
				return errors.New("no line " + line)
			}
		}
		return nil
	})
}
