//go:build e2e

package neighbors

import (
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// docker is the Docker engine. It sets the policy of FORWARD to drop, and has chains for published ports.
type docker struct{ process *lab.Process }

// TestDocker: pods may be forwarded (chain DOCKER-USER), as Docker's documentation asks of other routers on the host.
func TestDocker(t *testing.T) {
	needs(t, "dockerd", "containerd", "iptables")
	testNeighbor(t, func() neighbor { return &docker{} })
}

func (n *docker) start(t *testing.T, b *bed) {
	t.Helper()
	s := b.newSystem(t)
	s.bus(t)
	n.process = s.start(t, "dockerd", "dockerd", "--data-root", b.dir+"/docker", "--exec-root=/run/docker", "--pidfile=/run/docker.pid",
		"--ipv6", "--fixed-cidr-v6=fd00:d0c::/64", "--ip6tables", "--experimental", "--storage-driver=vfs")
	eventually(t, "dockerd answers", n.process, func() bool { return s.succeeds("docker", "version") })
	for program, f := range map[string]lab.Family{"iptables": lab.IPv4, "ip6tables": lab.IPv6} {
		chain := "DOCKER-USER"
		if !s.succeeds(program, "-n", "-L", chain) {
			chain = "FORWARD" // this version has no chain for users in IPv6
		}
		for _, end := range []string{"-s", "-d"} {
			rule := []string{chain, end, lab.MustText(f, "PODS"), "-j", "ACCEPT"}
			if !s.succeeds(append([]string{program, "-C"}, rule...)...) {
				s.run(t, append([]string{program, "-I"}, rule...)...)
			}
		}
	}
}

// reload restarts the engine: its SIGHUP changes no rule.
func (n *docker) reload(t *testing.T, b *bed) {
	t.Helper()
	stop(t, n.process)
	n.start(t, b)
}

func (n *docker) stop(t *testing.T, _ *bed) {
	t.Helper()
	stop(t, n.process)
}

func (*docker) trace() string { return "Docker" }

func (*docker) drops() bool { return false }
