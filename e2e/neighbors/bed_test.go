//go:build e2e

package neighbors

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/clients"
	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/program"
)

var binary string // the verdict under test

func TestMain(m *testing.M) { os.Exit(program.Main(m, &binary)) }

// Ports of the Services.
const (
	servicePort   = 80
	nodePort      = 30080
	localNodePort = 30081
	healthPort    = 30082 // healthCheckNodePort of the Service "local"
)

// bed is the lab's node with the manifests of the scenarios. The daemon and the neighbor start in the order that a test wants.
type bed struct {
	*lab.World
	dir     string // of logs
	objects string // the folder of manifests
	verdict *daemon.Daemon
	system  *system // nil: no neighbor needed one so far

	masqueradesRemote bool // see masqueraded
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{World: lab.New(t), dir: t.TempDir(), objects: t.TempDir()}
	b.endpoints(t, "a", "b", "c")
	daemon.WriteFile(t, b.objects, "local.yaml", service(t, "local", "VIP2", "LB2", localNodePort,
		fmt.Sprint("externalTrafficPolicy: Local\n  healthCheckNodePort: ", healthPort)))
	daemon.WriteFile(t, b.objects, "local-slices.yaml", endpointSlices(t, "local", "a", "c"))
	daemon.WriteFile(t, b.objects, "sticky.yaml", service(t, "sticky", "VIP3", "LB3", 0, "sessionAffinity: ClientIP"))
	daemon.WriteFile(t, b.objects, "sticky-slices.yaml", endpointSlices(t, "sticky", "a", "b", "c"))
	daemon.WriteFile(t, b.objects, "hairpin.yaml", service(t, "hairpin", "VIP4", "", 0, ""))
	daemon.WriteFile(t, b.objects, "hairpin-slices.yaml", endpointSlices(t, "hairpin", "b"))
	return b
}

// endpoints writes the Service "web" and its endpoints.
func (b *bed) endpoints(t *testing.T, pods ...string) {
	t.Helper()
	daemon.WriteFile(t, b.objects, "web.yaml", service(t, "web", "VIP1", "LB1", nodePort,
		fmt.Sprintf("externalIPs: [%q, %q]", lab.MustText(lab.IPv4, "EXT1"), lab.MustText(lab.IPv6, "EXT1"))))
	daemon.WriteFile(t, b.objects, "web-slices.yaml", endpointSlices(t, "web", pods...))
}

// startVerdict starts the daemon and waits until the kernel has its rules.
func (b *bed) startVerdict(t *testing.T, flags ...string) {
	t.Helper()
	b.verdict = daemon.Start(t, binary, b.Node, b.objects, append([]string{
		"--cluster-cidr=" + lab.MustText(lab.IPv4, "PODS") + "," + lab.MustText(lab.IPv6, "PODS"), "--nodeport-addresses=primary",
		"--metrics-bind-address=", "-v=4",
	}, flags...)...)
}

// restartVerdict ends the daemon, whose rules stay, and starts another one.
func (b *bed) restartVerdict(t *testing.T, flags ...string) {
	t.Helper()
	lab.Must(t, b.verdict.Stop())
	b.startVerdict(t, flags...)
}

// service returns a Service for TCP and UDP in both families, with cluster IPs, and where asked with load-balancer IPs and
// a node port.
func service(t *testing.T, name, vip, lb string, node int, spec string) string {
	t.Helper()
	var out strings.Builder
	kind := "ClusterIP"
	if node > 0 {
		kind = "LoadBalancer"
	}
	fmt.Fprintf(&out, "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: %s}\nspec:\n  type: %s\n", name, kind)
	fmt.Fprintf(&out, "  clusterIP: %[1]q\n  clusterIPs: [%[1]q, %[2]q]\n  ipFamilies: [IPv4, IPv6]\n  ipFamilyPolicy: RequireDualStack\n",
		lab.MustText(lab.IPv4, vip), lab.MustText(lab.IPv6, vip))
	if spec != "" {
		fmt.Fprintf(&out, "  %s\n", spec)
	}
	out.WriteString("  ports:\n")
	for _, protocol := range []string{"TCP", "UDP"} {
		fmt.Fprintf(&out, "  - {name: %s, protocol: %s, port: %d, targetPort: 8080", strings.ToLower(protocol), protocol, servicePort)
		if node > 0 {
			fmt.Fprintf(&out, ", nodePort: %d", node)
		}
		out.WriteString("}\n")
	}
	if node > 0 {
		fmt.Fprintf(&out, "status: {loadBalancer: {ingress: [{ip: %q}, {ip: %q}]}}\n", lab.MustText(lab.IPv4, lb), lab.MustText(lab.IPv6, lb))
	}
	return out.String()
}

func endpointSlices(t *testing.T, service string, pods ...string) string {
	t.Helper()
	var out strings.Builder
	for _, f := range lab.Families() {
		fmt.Fprintf(&out, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n")
		fmt.Fprintf(&out, "metadata: {namespace: shop, name: %s-%d, labels: {kubernetes.io/service-name: %s}}\n", service, f, service)
		fmt.Fprintf(&out, "addressType: %s\nports:\n- {name: tcp, protocol: TCP, port: 8080}\n- {name: udp, protocol: UDP, port: 8080}\nendpoints:\n", f)
		for _, pod := range pods {
			node := lab.NodeOf(pod)
			if node == lab.NodeName {
				node = "n1" // the name that package daemon gives the node
			}
			fmt.Fprintf(&out, "- {addresses: [%q], nodeName: %s, conditions: {ready: true}}\n", lab.PodAddress(f, pod), node)
		}
	}
	return out.String()
}

// patience is how long a client waits for an answer. A client of the load that has to send its first packet again, a second
// later, has lost one.
const patience = 20 * time.Second

// load returns a client for each way to reach the Service "web".
func (b *bed) load(t *testing.T) (list []clients.Client) {
	t.Helper()
	for _, f := range lab.Families() {
		for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
			for i, c := range []struct {
				place, name string
				port        uint16
			}{
				{"a", "VIP1", servicePort}, {lab.Node, "VIP1", servicePort}, {lab.Outside, "NODE", nodePort}, {lab.Outside, "LB1", servicePort},
			} {
				list = append(list, clients.Client{Place: c.place, Question: lab.Question{
					Protocol: protocol, Ports: lab.OwnPorts(i), To: lab.AddressPort(f, c.name, c.port), Patience: patience,
				}})
			}
		}
	}
	return list
}
