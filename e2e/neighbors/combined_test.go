//go:build e2e

package neighbors

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// combined are several neighbors on one node.
type combined []neighbor

// TestCombined: the neighbors of a usual node of a cluster, and of a usual host on bare metal, at once.
func TestCombined(t *testing.T) {
	needs(t, "firewalld", "firewall-cmd", "dbus-daemon", "dockerd", "containerd", "iptables", "ufw", "keepalived")
	program, speaker := filepath.Join(build(t, "flannel"), "flanneld"), build(t, "metallb")
	server, err := apiserver.Build("etcd", "kube-apiserver")
	lab.Must(t, err)
	t.Run("cluster node", func(t *testing.T) {
		testNeighbor(t, func() neighbor {
			return combined{
				// The remote node reaches the tunnel and flannel's etcd.
				&firewalld{open: `<port port="8472" protocol="udp"/><port port="2379" protocol="tcp"/>`},
				&flannel{backend: "vxlan", nft: true, program: program, etcd: filepath.Join(server, "etcd")},
				&metallb{folder: speaker, server: server},
			}
		})
	})
	t.Run("bare metal", func(t *testing.T) {
		testNeighbor(t, func() neighbor { return combined{&ufw{}, &docker{}, &keepalived{}} })
	})
}

func (c combined) start(t *testing.T, b *bed) {
	t.Helper()
	for _, n := range c {
		n.start(t, b)
	}
}

func (c combined) reload(t *testing.T, b *bed) {
	t.Helper()
	for _, n := range c {
		n.reload(t, b)
	}
}

func (c combined) stop(t *testing.T, b *bed) {
	t.Helper()
	for _, n := range slices.Backward(c) {
		n.stop(t, b)
	}
}

func (c combined) drops() bool { return slices.ContainsFunc(c, neighbor.drops) }

func (c combined) trace() string {
	var names []string
	for _, n := range c {
		if name := n.trace(); name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
