//go:build e2e

package neighbors

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// cni are the reference plugins: one that connects pods (bridge or ptp), with portmap, firewall and bandwidth. They write
// rules when a pod comes or goes.
type cni struct {
	plugin, backend string // backend writes host ports and masquerading: iptables or nftables
	tools           string // the folder with the plugins
	ports           []int  // of the node, which portmap sends to the first pod
	pods            []*lab.Namespace
	at              map[lab.Family][]netip.Addr
}

// hostPort is a host port that is a node port of no Service.
const hostPort = 30099

// TestCNIPlugins: pods with masquerading and host ports come and go beside Verdict.
func TestCNIPlugins(t *testing.T) {
	needs(t, "iptables", "nft")
	tools := build(t, "cni")
	for _, n := range []cni{{plugin: "bridge", backend: "iptables"}, {plugin: "ptp", backend: "nftables"}} {
		n.tools, n.ports = tools, []int{hostPort}
		t.Run(n.plugin+" "+n.backend, func(t *testing.T) { testNeighbor(t, func() neighbor { return &n }) })
	}
}

func (n *cni) start(t *testing.T, b *bed) {
	t.Helper()
	s := b.newSystem(t)
	s.write(t, "/run/cni/net.d/10-pods.conflist", n.config())
	n.pods, n.at = nil, map[lab.Family][]netip.Addr{}
	for i := range 2 {
		pod := newPod(t, fmt.Sprintf("cni-%d", i))
		n.pods = append(n.pods, pod)
		n.tool(t, s, "add", i)
		addresses, links, err := pod.Addresses()
		lab.Must(t, err)
		for j, a := range addresses {
			if f := lab.FamilyOf(a.Addr()); links[j] == "eth0" && !a.Addr().IsLinkLocalUnicast() {
				n.at[f] = append(n.at[f], a.Addr())
			}
		}
		serve(t, pod, fmt.Sprintf("cni-%d", i))
	}
	if len(n.ports) == 0 || n.ports[0] != hostPort {
		return
	}
	for _, f := range lab.Families() {
		for _, place := range []string{lab.Outside, lab.Node} {
			q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f, "NODE", hostPort), Patience: 10 * time.Second}
			if r := b.At(t, place).Ask(q); r.Outcome != lab.Answered || r.Answer.Pod != "cni-0" {
				t.Errorf("%s from %s: %s, want an answer of the pod with the host port", q, place, r)
			}
		}
	}
}

// config is the list of plugins that a container engine calls for each pod.
func (n *cni) config() string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [
{"type": %q, "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": true, "ipMasqBackend": %q,
 "ipam": {"type": "host-local", "dataDir": "/run/cni/ipam",
  "ranges": [[{"subnet": "10.0.3.0/24"}], [{"subnet": "fd00:10:0:3::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
{"type": "portmap", "capabilities": {"portMappings": true}, "backend": %q},
{"type": "firewall", "backend": "iptables"},
{"type": "bandwidth", "ingressRate": 1000000000, "ingressBurst": 100000000}]}
`, n.plugin, n.backend, n.backend)
}

// tool has cnitool add a pod to the network, or remove it.
func (n *cni) tool(t *testing.T, s *system, verb string, pod int) {
	t.Helper()
	ports := ""
	if pod == 0 {
		for _, host := range n.ports {
			ports += fmt.Sprintf(`{"hostPort": %d, "containerPort": 8080, "protocol": "tcp"},`, host)
		}
	}
	namespace := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.pods[pod].Fd())
	s.run(t, "env", "NETCONFPATH=/run/cni/net.d", "CNI_PATH="+n.tools, fmt.Sprintf(`CAP_ARGS={"portMappings": [%s]}`, strings.TrimSuffix(ports, ",")),
		filepath.Join(n.tools, "cnitool"), verb, "pods", namespace)
}

// newPod makes a namespace without a link.
func newPod(t *testing.T, name string) *lab.Namespace {
	t.Helper()
	pod, err := lab.NewNamespace(name)
	lab.Must(t, err)
	t.Cleanup(func() { _ = pod.Close() })
	return pod
}

// serve answers in a namespace as the lab's pods do.
func serve(t *testing.T, at *lab.Namespace, as string) {
	t.Helper()
	port := lab.Ports()[0]
	err := at.Do(func() error {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		u, err := net.ListenUDP("udp", &net.UDPAddr{Port: int(port)})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = u.Close() })
		go lab.Accept(l, as, port)
		go lab.Reply(u, as, port)
		return nil
	})
	lab.Must(t, err)
}

// reload replaces the pods.
func (n *cni) reload(t *testing.T, b *bed) {
	t.Helper()
	n.stop(t, b)
	n.start(t, b)
}

func (n *cni) stop(t *testing.T, b *bed) {
	t.Helper()
	for i := range n.pods {
		n.tool(t, b.system, "del", i)
	}
}

func (*cni) trace() string { return "CNI portmap" }

func (*cni) drops() bool { return false }
