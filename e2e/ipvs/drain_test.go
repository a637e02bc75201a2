//go:build ipvs

package ipvs

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestDrain: connections to a removed endpoint end by themselves, and a local address exposes no service of the node
// (k/k #72236).
func TestDrain(t *testing.T) {
	short := append([]string{"--ipvs-graceful-period=4s"}, hybrid()...)
	each(t, []test{
		{"an endpoint goes", hybrid(), endpointGoes},
		{"an endpoint comes back", hybrid(), endpointComesBack},
		{"an endpoint terminates", hybrid(), endpointTerminates},
		{"UDP does not wait", hybrid(), flowsDoNotWait},
		{"the graceful period ends", short, gracefulPeriodEnds},
		{"a Service goes, its address stays guarded", hybrid(), serviceGoes},
		{"nothing of the node is reachable at a frontend", ipvs(), nodeIsNotExposed},
		{"an address that the node has of its own", hybrid(), ownAddress},
	})
}

// drained is how long it may take until a real server without connections is gone. The engine looks every 30 s. The
// kernel keeps a connection for 10 s after a reset, and for 2 minutes after a repeated SYN that follows the reset.
const drained = 3 * time.Minute

func (b *bed) expectAlive(f *lab.Flow, pod string) {
	b.Helper()
	if r := f.Send(patience); r.Outcome != lab.Answered || r.Answer.Name() != pod {
		b.Errorf("the open connection to %s: %s", pod, r)
	}
}

func (b *bed) expectWeight(pod string, want int) {
	b.Helper()
	if got := b.weight(pod); got != want {
		b.Errorf("endpoint %s has weight %d, want %d:\n%s", pod, got, want, b.kernel(b.vip))
	}
}

// holdAt opens connections until one goes to the pod.
func (b *bed) holdAt(pod string, q lab.Question) *lab.Flow {
	b.Helper()
	for range 20 {
		if f, got := b.hold("x", q); got == pod {
			return f
		}
	}
	b.Fatalf("%s is not reached", pod)
	return nil
}

// draining removes endpoint b while it has an open connection, and returns that connection.
func (b *bed) draining(scheduler string) *lab.Flow {
	b.Helper()
	b.serve(scheduler, "ports: [{port: 80}]")
	b.settled("endpoints web b c")
	f := b.holdAt("b", b.at(80))
	b.settled("endpoints web c")
	b.expectWeight("b", 0)
	b.expectAlive(f, "b")
	return f
}

func endpointGoes(b *bed) {
	b.serve("rr", "ports: [{port: 80}]")
	b.reschedule("lc")
	b.settled("endpoints web b c")
	f := b.holdAt("b", b.at(80))
	b.settled("endpoints web c")
	b.expectWeight("b", 0)
	b.expectAlive(f, "b")
	b.steps("restart")
	b.must(b.Settle())
	b.steps("kill")
	b.must(b.Settle())
	time.Sleep(1500 * time.Millisecond) // the engine has looked for connections by now
	b.expectWeight("b", 0)
	b.expectAlive(f, "b")
	if got := b.spread("x", b.at(80), 10); got["c"] != 10 {
		b.Errorf("new connections: %v", got)
	}
	f.Close()
	b.until(drained, "b is gone from IPVS", func() bool { return b.weight("b") == -1 })
	b.expectWeight("c", 1)
}

func endpointComesBack(b *bed) {
	f := b.draining("rr") // lc would leave out b, which has an open connection
	b.settled("endpoints web b c")
	b.expectWeight("b", 1)
	b.expectAlive(f, "b")
	if got := b.spread("x", b.at(80), 20); got["b"] == 0 || got["c"] == 0 {
		b.Errorf("new connections: %v", got)
	}
}

func endpointTerminates(b *bed) {
	b.serve("lc", "ports: [{port: 80}]")
	b.settled("endpoints web b c")
	f := b.holdAt("b", b.at(80))
	b.settled("endpoints web b(terminating) c")
	b.expectWeight("b", 0)
	b.expectAlive(f, "b")
	b.settled("endpoints web b(terminating)") // it is the only endpoint, so it is used
	b.expectWeight("b", 1)
	b.expectAlive(f, "b")
	b.settled("endpoints web b(stopping)")
	b.steps("probe tcp from x to $NODE:9 => refused")
	b.expectAlive(f, "b")
	if r := b.place("x").Ask(b.at(80)); r.Outcome != lab.Refused {
		b.Errorf("without an endpoint: %s", r)
	}
}

func flowsDoNotWait(b *bed) {
	b.serve("lc", "externalIPs: [$EXT1], ports: [{port: 53, protocol: UDP}]")
	b.settled("endpoints web b")
	b.steps("open flow udp from x to $EXT1:53 => b")
	b.settled("endpoints web c")
	b.expectWeight("b", -1)
	b.expectWeight("c", 1)
	b.steps("send flow => c")
}

func gracefulPeriodEnds(b *bed) {
	f := b.draining("lc")
	b.until(20*time.Second, "b is gone from IPVS", func() bool { return b.weight("b") == -1 })
	if r := f.Send(patience); r.Outcome == lab.Answered {
		b.Errorf("the connection to b still answers: %s", r)
	}
}

// serviceGoes: the virtual server drains, and its address stays local meanwhile. The node gets neither new connections
// nor packets to other ports of the address.
func serviceGoes(b *bed) {
	b.serve("lc", "externalIPs: [$EXT2], ports: [{port: 80}]")
	b.settled("endpoints web b")
	external := b.at(80)
	external.To = netip.AddrPortFrom(b.address("EXT2"), 80)
	f, _ := b.hold("x", external)
	b.settled("delete Service web")
	for range 2 {
		b.expectAlive(f, "b")
		b.steps(`
probe tcp from x to $EXT2:80 => refused
probe tcp from x to $EXT2:8080 => refused
probe udp from x to $EXT2:8080 => refused
probe tcp from a to $EXT2:8080 => refused
probe tcp from node to $EXT2:8080 => refused`)
		b.steps("restart")
		b.must(b.Settle())
	}
	f.Close()
	b.until(drained, "the virtual server is gone", func() bool { return b.kernel(external.To.Addr()) == "" })
	b.until(5*time.Second, "the address is not local any more", func() bool { return !b.isLocal(external.To.Addr()) })
	b.steps("probe tcp from x to $EXT2:80 => unreachable\nprobe tcp from x to $EXT2:8080 => unreachable")
}

// nodeIsNotExposed: the node has servers that listen on all addresses, at ports 8080 to 8083.
func nodeIsNotExposed(b *bed) {
	b.serve("", "type: LoadBalancer, externalIPs: [$EXT1], ports: [{port: 80, nodePort: 30080}, {name: s, port: 8081, nodePort: 30081}]"+
		"}\n    status: {loadBalancer: {ingress: [{ip: $LB1}]}")
	b.settled("endpoints web b c")
	for _, target := range []string{"$EXT1", "$LB1"} {
		for _, from := range []string{"x", "a", "c", "node"} {
			b.steps(fmt.Sprintf("probe tcp from %s to %[2]s:8080 => refused\nprobe udp from %[1]s to %[2]s:8080 => refused\n"+
				"probe tcp from %[1]s to %[2]s:8081 => b c", from, target))
		}
	}
	b.steps("probe tcp from x to $NODE:8080 => host")
	for _, from := range []string{"x", "a", "node"} {
		if r := b.place(from).Ask(b.at(8080)); r.Outcome != lab.Refused {
			b.Errorf("from %s to the cluster IP at 8080: %s", from, r)
		}
	}
}

// ownAddress: an external IP that is an address of the node stays an address of the node.
func ownAddress(b *bed) {
	b.serve("lc", "externalIPs: [$NODE_SECOND], ports: [{port: 80}]")
	b.settled("endpoints web b c")
	b.steps(`
probe tcp from x to $NODE_SECOND:80 => b c source node
probe tcp from node to $NODE_SECOND:80 => b c source node
probe tcp from x to $NODE_SECOND:8080 => host`)
	b.settled("delete Service web")
	b.steps("probe tcp from x to $NODE_SECOND:8080 => host\nprobe tcp from x to $NODE_SECOND:80 => refused")
	if !b.isLocal(b.address("NODE_SECOND")) {
		b.Error("the node has lost its own address")
	}
}
