//go:build e2e || ipvs

package random

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// clients ask the Services that nobody touches, from outside and from a pod of another node.
type clients struct {
	t       *testing.T
	apart   bool // affinity is that of a frontend, not that of a Service port
	own     bool // each frontend of a Service has source ports of its own; IPVS needs that (see lab.OwnPorts)
	stop    chan struct{}
	once    sync.Once
	running sync.WaitGroup
	made    atomic.Int64 // connections
	asked   atomic.Int64 // questions over flows that stay open

	mu       sync.Mutex
	failures []string
}

// answerIn is how long a client waits. A machine that is busy with other tests takes its time.
const answerIn = 10 * time.Second

// targets are the frontends of a Service, in the order in which clients ask them.
func targets(f lab.Family) (web, sticky, modal []netip.AddrPort) {
	for _, name := range []string{"VIP1", "LB1", "EXT1"} {
		web = append(web, netip.AddrPortFrom(lab.Address(f, name), 80))
	}
	node := lab.Address(f, "NODE")
	return append(web, netip.AddrPortFrom(node, webNodePort)),
		[]netip.AddrPort{netip.AddrPortFrom(lab.Address(f, "VIP2"), 80), netip.AddrPortFrom(node, stickyNodePort)},
		[]netip.AddrPort{netip.AddrPortFrom(lab.Address(f, "VIP4"), 80), netip.AddrPortFrom(node, modalNodePort)}
}

// watch starts the clients of these families.
func (n *node) watch(families ...lab.Family) *clients {
	n.Helper()
	c := &clients{t: n.T, apart: n.backend == "ipvs", own: n.backend != "", stop: make(chan struct{})}
	n.Cleanup(c.close)
	for _, place := range []string{lab.Outside, "d"} {
		at := n.world.At(n, place)
		for _, f := range families {
			web, sticky, modal := targets(f)
			c.run(func() { c.connect(at, web, false) })
			c.run(func() { c.connect(at, sticky, true) })
			c.run(func() { c.connect(at, modal, false) })
			for i := range web {
				c.run(func() { c.hold(at, c.question(lab.UDP, web, i)) })
				c.run(func() { c.hold(at, c.question(lab.TCP, web, i)) })
			}
		}
	}
	return c
}

// question asks one of the frontends of a Service.
func (c *clients) question(p lab.Protocol, list []netip.AddrPort, i int) lab.Question {
	q := lab.Question{Protocol: p, To: list[i], Patience: answerIn}
	if c.own {
		q.Ports = lab.OwnPorts(i)
	}
	return q
}

func (c *clients) run(do func()) {
	c.running.Add(1)
	go func() {
		defer c.running.Done()
		do()
	}()
}

func (c *clients) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// pause waits between two questions. It reports whether the clients go on.
func (c *clients) pause(d time.Duration) bool {
	select {
	case <-c.stop:
		return false
	case <-time.After(d):
		return true
	}
}

// connect makes one connection after the other. With affinity, all of them have the same endpoint; with IPVS, all of those
// to the same frontend, because each virtual server remembers clients of its own.
func (c *clients) connect(at *lab.Namespace, list []netip.AddrPort, sticky bool) {
	pods := map[netip.AddrPort]string{}
	for n := 0; c.pause(2 * time.Millisecond); n++ {
		q := c.question(lab.TCP, list, n%len(list))
		r := at.Ask(q)
		c.made.Add(1)
		one := list[0]
		if c.apart {
			one = q.To
		}
		pod := pods[one]
		switch {
		case r.Outcome != lab.Answered:
			c.fail("%s from %s: %s", q, at.Name, r)
		case !sticky:
		default:
			if pods[one] = r.Answer.Pod; pod != "" && pod != r.Answer.Pod {
				c.fail("%s from %s: %s, and before that %s", q, at.Name, r, pod)
			}
		}
	}
}

// hold asks over one flow again and again. The answers come from the same endpoint.
func (c *clients) hold(at *lab.Namespace, q lab.Question) {
	flow, first := at.Open(q)
	if flow == nil {
		c.fail("%s from %s: the first answer: %s", q, at.Name, first)
		return
	}
	defer flow.Close()
	for c.pause(20 * time.Millisecond) {
		r := flow.Send(answerIn)
		c.asked.Add(1)
		if r.Outcome != lab.Answered || r.Answer.Pod != first.Answer.Pod {
			c.fail("%s from %s, a flow that stays open: %s, and before that %s", q, at.Name, r, first)
			return
		}
	}
}

// noticeNothing expects that no client has failed.
func (c *clients) noticeNothing(h history) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.failures {
		c.t.Error(f)
	}
	if len(c.failures) > 0 {
		c.t.Fatalf("clients of untouched Services noticed something\n%s", h)
	}
}

// end stops the clients.
func (c *clients) end(h history) {
	c.t.Helper()
	c.close()
	c.noticeNothing(h)
}

func (c *clients) close() {
	c.once.Do(func() { close(c.stop) })
	c.running.Wait()
}

func (c *clients) String() string {
	return fmt.Sprintf("%d connections, %d questions over open flows", c.made.Load(), c.asked.Load())
}
