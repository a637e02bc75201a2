//go:build ipvs

package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestEngines: no connection fails while a Service moves between nft and IPVS.
func TestEngines(t *testing.T) {
	noDetection := append([]string{"--cluster-cidr="}, hybrid()...)
	each(t, []test{
		{"a Service moves", hybrid(), serviceMoves},
		{"the scheduler changes", hybrid(), schedulerChanges},
		{"UDP flows follow their Service", hybrid(), flowsFollow},
		{"policy Local moves", hybrid(), localMoves},
		{"a Service moves, pods are not known", noDetection, serviceMoves},
		{"the backend changes", hybrid(), backendChanges},
		{"restarts", ipvs(), restarts},
	})
}

// client connects all the time.
type client struct {
	name    string
	stop    chan struct{}
	done    sync.WaitGroup
	total   int
	slowest time.Duration
	failed  []string
	late    []attempt
}

// attempt is a connection that took long.
type attempt struct {
	begun, ended time.Time
	result       lab.Result
}

const (
	// lost is how long a connection takes if its first packet is lost: TCP repeats the packet after a second.
	lost = 900 * time.Millisecond
	// late is longer than any connection takes, unless the machine is overloaded.
	late = 300 * time.Millisecond
)

func (b *bed) connecting(from string, q lab.Question) *client {
	b.Helper()
	c := &client{name: fmt.Sprintf("%s to %s", from, q.To), stop: make(chan struct{})}
	ns := b.place(from)
	c.done.Go(func() {
		err := ns.Do(func() error {
			for {
				begun := time.Now()
				select {
				case <-c.stop:
					return nil
				case <-time.After(25 * time.Millisecond):
					c.ask(begun, q)
				}
			}
		})
		if err != nil {
			c.failed = append(c.failed, err.Error())
		}
	})
	return c
}

// ask connects once. An attempt begins with the pause before it, because a machine that stands still is late then, too.
func (c *client) ask(begun time.Time, q lab.Question) {
	c.total++
	r := lab.Ask(q)
	c.slowest = max(c.slowest, r.Took)
	ended := time.Now()
	if r.Outcome != lab.Answered {
		c.failed = append(c.failed, fmt.Sprintf("connection %d: %s after %s", c.total, r, r.Took))
	} else if ended.Sub(begun) > late {
		c.late = append(c.late, attempt{begun, ended, r})
	}
}

// control is a client that uses no Service. A delay that it sees too comes from the machine.
func (b *bed) control() *client {
	b.Helper()
	q := b.at(80)
	q.To = netip.AddrPortFrom(lab.PodAddress(b.family, "b"), lab.Ports()[0])
	return b.connecting("x", q)
}

// end stops clients. The first one is the control. No connection may have failed, and no client may have lost a packet.
func (b *bed) end(clients []*client) {
	b.Helper()
	for _, c := range clients {
		close(c.stop)
		c.done.Wait()
	}
	for _, c := range clients[1:] {
		for _, l := range c.late {
			if l.result.Took > lost && !clients[0].wasLate(l) {
				c.failed = append(c.failed, fmt.Sprintf("%s after %s, at %s", l.result, l.result.Took, l.ended.UTC().Format("15:04:05.000")))
			}
		}
		if len(c.failed) > 0 || c.total < 10 {
			b.Errorf("from %s: %d of %d connections failed: %s", c.name, len(c.failed), c.total, strings.Join(c.failed[:min(len(c.failed), 5)], "; "))
		}
		b.Logf("from %s: %d connections, the slowest took %s", c.name, c.total, c.slowest)
	}
}

// wasLate reports whether the client had to wait at the same time.
func (c *client) wasLate(at attempt) bool {
	return slices.ContainsFunc(c.late, func(l attempt) bool { return l.begun.Before(at.ended) && at.begun.Before(l.ended) })
}

// everywhere connects from all kinds of places to all kinds of frontends.
func (b *bed) everywhere() []*client {
	b.Helper()
	external := b.at(80)
	external.To = netip.AddrPortFrom(b.address("EXT1"), 80)
	nodePort := b.at(80)
	nodePort.To = netip.AddrPortFrom(b.address("NODE"), 30080)
	list := []*client{b.control(), b.connecting("a", b.at(80))}
	for i, q := range []lab.Question{b.at(80), external, nodePort} {
		q.Ports = lab.OwnPorts(i)
		list = append(list, b.connecting("x", q), b.connecting("node", q))
	}
	return list
}

// everyFrontend is the rest of a Service with all kinds of frontends.
const everyFrontend = "type: NodePort, externalIPs: [$EXT1], ports: [{port: 80, nodePort: 30080}]"

func serviceMoves(b *bed) {
	b.serve("", everyFrontend)
	b.settled("endpoints web b c d")
	clients := b.everywhere()
	for range 3 {
		b.reschedule("lc")
		b.expectScheduler("lc")
		b.expectUsableSource()
		b.reschedule("")
		if b.weight("b") > 0 {
			b.Errorf("IPVS still serves:\n%s", b.kernel(b.vip))
		}
		b.expectUsableSource()
	}
	b.end(clients)
}

// expectUsableSource: packets that the node sends to an address that is local for IPVS have that address as their
// source, also while the address is still local after the Service has moved. No endpoint may see that source, because
// the address is local on every node.
func (b *bed) expectUsableSource() {
	b.Helper()
	for range 10 {
		if r := b.place("node").Ask(b.at(80)); r.Outcome != lab.Answered || r.Answer.Source == b.vip {
			b.Errorf("from the node: %s", r)
		}
	}
}

func schedulerChanges(b *bed) {
	b.serve("lc", everyFrontend)
	b.settled("endpoints web b c d")
	clients := b.everywhere()
	for _, s := range []string{"rr", "wlc", "nq", "random", "lc", "dh", "mh", "lc"} {
		b.reschedule(s)
		time.Sleep(100 * time.Millisecond)
	}
	b.expectScheduler("lc")
	b.end(clients)
}

// localMoves: nft serves pods and the node in both cases.
func localMoves(b *bed) {
	b.serve("", "externalTrafficPolicy: Local, "+everyFrontend)
	b.settled("endpoints web b c d")
	clients := b.everywhere()
	for range 2 {
		b.reschedule("lc")
		time.Sleep(300 * time.Millisecond)
		b.steps(`
probe tcp from x to $EXT1:80 => b source client
probe tcp from x to $NODE:30080 => b source client
probe tcp from a to $EXT1:80 => b c d source client
probe tcp from node to $EXT1:80 => b c d source node
probe tcp from node to $NODE:30080 => b c d source node`)
		b.reschedule("")
		time.Sleep(300 * time.Millisecond)
	}
	b.end(clients)
}

// flowsFollow: a UDP client keeps its port, and with it its entry in connection tracking. A client on the node that
// connected while IPVS served has the address of the Service as its source. It must connect again when that address is
// no longer local.
func flowsFollow(b *bed) {
	b.serve("", "type: NodePort, externalIPs: [$EXT1], ports: [{port: 53, protocol: UDP, nodePort: 30053}]")
	b.settled("endpoints web b c")
	b.steps(`
open one udp from x to $EXT1:53 => b c
open two udp from node to $EXT1:53 => b c
open three udp from x to $NODE:30053 => b c`)
	for range 2 {
		b.reschedule("lc")
		b.steps(`
send one => b c
send two => b c
send three => b c
open four udp from x to $EXT1:53 => b c
open six udp from x to $NODE:30053 => b c`)
		b.reschedule("")
		b.steps(`
send one => b c
send two => b c
send three => b c
send four => b c
send six => b c
probe udp from node to $EXT1:53 => b c`)
	}
	b.reschedule("lc")
	b.settled("endpoints web d")
	b.steps(`
send one => d
send four => d
send six => d`)
	b.settled("endpoints web")
	b.steps(`
send one => refused
send six => refused`)
}

// backendChanges: a process with another backend takes over, and in the end removes what the earlier process left.
func backendChanges(b *bed) {
	b.serve("lc", everyFrontend)
	b.settled("endpoints web b c d")
	b.expectScheduler("lc")
	held, pod := b.hold("x", b.at(80))
	clients := b.everywhere()
	for _, next := range [][]string{onlyNFT(), ipvs(), onlyNFT(), hybrid(), ipvs(), onlyNFT()} {
		b.must(b.Restart(next...))
		b.must(b.Settle())
		time.Sleep(200 * time.Millisecond)
	}
	b.end(clients)
	if r := held.Send(patience); r.Outcome != lab.Answered || r.Answer.Name() != pod {
		b.Errorf("the connection to %s that was there before: %s", pod, r)
	}
	b.steps("probe tcp from x to $EXT1:8080 => refused") // the node listens there; the address is still local and guarded
	b.must(b.Restart(append([]string{"--ipvs-graceful-period=4s"}, onlyNFT()...)...))
	b.until(time.Minute, "nothing of ours is left in IPVS", func() bool { return b.kernel(netip.Addr{}) == "" })
	b.until(5*time.Second, "the address is not local any more", func() bool { return !b.isLocal(b.vip) })
	b.steps("probe tcp from x to $NODE:30080 => b c d source node")
}

// restarts: connections go on while verdict is stopped and when it starts again.
func restarts(b *bed) {
	b.serve("", everyFrontend)
	b.settled("endpoints web b c d")
	held, pod := b.hold("x", b.at(80))
	clients := b.everywhere()
	b.steps("restart\nkill")
	b.must(b.Settle())
	b.steps("stop")
	time.Sleep(300 * time.Millisecond)
	b.settled("endpoints web c d\nstart")
	b.end(clients)
	if got := b.spread("x", b.at(80), 10); got["b"] != 0 {
		b.Errorf("the endpoint that went while verdict was away: %v", got)
	}
	if r := held.Send(patience); r.Outcome != lab.Answered || r.Answer.Name() != pod {
		b.Errorf("the connection to %s that was there before: %s", pod, r)
	}
}
