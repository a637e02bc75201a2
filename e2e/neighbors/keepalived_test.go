//go:build e2e

package neighbors

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// keepalived puts load-balancer IPs on the node's interface and takes them away, as kube-vip and the servicelb of k3s do in
// their ways.
type keepalived struct{ process *lab.Process }

// TestKeepalived: the load-balancer IPs of the Service "web" are addresses of the node as long as keepalived wants it.
func TestKeepalived(t *testing.T) {
	needs(t, "keepalived")
	testNeighbor(t, func() neighbor { return &keepalived{} })
}

func (n *keepalived) start(t *testing.T, b *bed) {
	t.Helper()
	s := b.newSystem(t)
	var conf strings.Builder
	conf.WriteString("global_defs {\n  vrrp_garp_master_delay 0\n}\n")
	for i, f := range lab.Families() {
		fmt.Fprintf(&conf, `vrrp_instance v%d {
  state MASTER
  interface %s
  virtual_router_id %d
  priority 100
  advert_int 1
  virtual_ipaddress {
    %s
  }
}
`, f, lab.OutsideLink, i+1, lab.MustText(f, "LB1"))
	}
	s.write(t, "/run/keepalived.conf", conf.String())
	n.process = s.start(t, "keepalived", "keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file=/run/keepalived.conf")
	n.eventually(t, b, true)
}

// eventually waits until the node has the addresses, or has them no more.
func (n *keepalived) eventually(t *testing.T, b *bed, has bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("the node has the load-balancer IPs: %t", has), n.process, func() bool {
		out := b.Node.Must(t, "", "ip", "-o", "address", "show", "dev", lab.OutsideLink)
		for _, f := range lab.Families() {
			if contains(out, " "+lab.MustText(f, "LB1")+"/") != has {
				return false
			}
		}
		return true
	})
}

func (n *keepalived) reload(t *testing.T, b *bed) {
	t.Helper()
	lab.Must(t, syscall.Kill(n.process.PID(), syscall.SIGHUP))
	n.eventually(t, b, true)
}

func (n *keepalived) stop(t *testing.T, b *bed) {
	t.Helper()
	stop(t, n.process)
	n.eventually(t, b, false)
}

func (*keepalived) trace() string { return "keepalived" }

func (*keepalived) drops() bool { return false }
