//go:build ipvs

package ipvs

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestSync: a second balancer takes over the open connections of the first one, which is unplugged, whatever real servers its
// scheduler would choose.
func TestSync(t *testing.T) {
	n := newForwarding(t)
	const secondHost = 3
	second := n.join("second", secondHost)
	n.route(balancerHost)
	n.write("route", 80, "one", "two")
	n.run("first", n.balancer, "--ipvs-sync-daemon=master,device=eth0,id=7")
	n.run("second", second, "--ipvs-sync-daemon=backup,device=eth0,id=7")
	n.until("-g -w 1\n", 80, "one", "two")
	daemon := func() bool {
		return strings.Contains(second.Must(n.T, "", "ipvsadm", "-L", "--daemon"), "backup sync daemon (mcast=eth0, syncid=7")
	}
	n.eventually("the second balancer has no daemon", daemon)

	// Verdict starts a daemon again that someone else has stopped.
	second.Must(t, "", "ipvsadm", "--stop-daemon", "backup")
	n.eventually("the daemon is not started again", daemon)

	type held struct {
		flow *lab.Flow
		pod  string
	}
	var connections []held
	for i := range 12 {
		f := lab.Families()[i%2]
		flow, a := n.client.Hold(t, lab.Question{Protocol: lab.TCP, To: netip.AddrPortFrom(virtual(f), 80), Patience: patience})
		for range 3 { // the kernel sends a connection after its third packet
			flow.Send(patience)
		}
		connections = append(connections, held{flow, a.Pod})
	}
	n.eventually("the second balancer does not know the connections", func() bool {
		return strings.Count(second.Must(t, "", "ipvsadm", "-Lnc"), "ESTABLISHED") == len(connections)
	})
	n.must(n.lan.SetDown("balancer"))
	n.route(secondHost)
	for i, c := range connections {
		if r := c.flow.Send(patience); r.Outcome != lab.Answered || r.Answer.Pod != c.pod {
			t.Errorf("connection %d of %d, to %s: %s", i+1, len(connections), c.pod, r)
		}
	}
}

// route has the client reach the Service through a balancer.
func (n *forwarding) route(balancer int) {
	n.Helper()
	for _, f := range lab.Families() {
		n.client.Must(n.T, "", "ip", "route", "replace", netip.PrefixFrom(virtual(f), virtual(f).BitLen()).String(), "via", fmt.Sprint(host(f, balancer)))
	}
}

func (n *forwarding) eventually(what string, so func() bool) {
	n.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			n.Fatalf("after a minute, %s", what)
		}
	}
}
