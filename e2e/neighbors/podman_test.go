//go:build e2e

package neighbors

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// podman is netavark, the program that podman calls for the network of each container: a bridge, masquerading, a published
// port. The container is a namespace.
type podman struct{ container *lab.Namespace }

const netavark = "/usr/lib/podman/netavark"

// podmanConfig is what podman gives to netavark.
const podmanConfig = `{"container_id": "c0ffee", "container_name": "web",
"port_mappings": [{"container_port": 8080, "host_ip": "", "host_port": %d, "protocol": "tcp", "range": 1}],
"networks": {"podman": {"static_ips": ["10.88.0.2", "fd00:88::2"], "interface_name": "eth0"}},
"network_info": {"podman": {"name": "podman", "id": "2f259bab93aa", "driver": "bridge", "network_interface": "podman0",
 "subnets": [{"subnet": "10.88.0.0/16", "gateway": "10.88.0.1"}, {"subnet": "fd00:88::/64", "gateway": "fd00:88::1"}],
 "ipv6_enabled": true, "internal": false, "dns_enabled": false, "ipam_options": {"driver": "host-local"}}}}`

// TestPodman: containers with published ports come and go.
func TestPodman(t *testing.T) {
	needs(t, netavark, "iptables")
	testNeighbor(t, func() neighbor { return &podman{} })
}

func (*podman) trace() string { return "podman" }

func (n *podman) call(t *testing.T, b *bed, verb string) {
	t.Helper()
	command := b.newSystem(t).wrap([]string{netavark, "--config", "/run/netavark", verb, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.container.Fd())})
	b.Node.Must(t, fmt.Sprintf(podmanConfig, hostPort), command[0], command[1:]...)
}

func (n *podman) start(t *testing.T, b *bed) {
	t.Helper()
	n.container = newPod(t, "podman")
	n.call(t, b, "setup")
	serve(t, n.container, "podman")
	for _, f := range lab.Families() {
		q := lab.Question{Protocol: lab.TCP, To: lab.AddressPort(f, "NODE", hostPort), Patience: 10 * time.Second}
		if r := b.At(t, lab.Outside).Ask(q); r.Outcome != lab.Answered || r.Answer.Pod != "podman" {
			t.Errorf("%s: %s, want an answer of the container with the published port", q, r)
		}
	}
}

func (n *podman) reload(t *testing.T, b *bed) {
	t.Helper()
	n.stop(t, b)
	n.start(t, b)
}

func (n *podman) stop(t *testing.T, b *bed) {
	t.Helper()
	n.call(t, b, "teardown")
}

func (*podman) drops() bool { return false }
