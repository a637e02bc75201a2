//go:build e2e

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
		web = append(web, netip.AddrPortFrom(address(f, name), 80))
	}
	node := address(f, "NODE")
	return append(web, netip.AddrPortFrom(node, webNodePort)),
		[]netip.AddrPort{netip.AddrPortFrom(address(f, "VIP2"), 80), netip.AddrPortFrom(node, stickyNodePort)},
		[]netip.AddrPort{netip.AddrPortFrom(address(f, "VIP4"), 80), netip.AddrPortFrom(node, modalNodePort)}
}

// watch starts the clients.
func watch(t *testing.T, w *lab.World) *clients {
	t.Helper()
	c := &clients{t: t, stop: make(chan struct{})}
	t.Cleanup(c.close)
	for _, place := range []string{lab.Outside, "d"} {
		at := w.At(t, place)
		for _, f := range lab.Families() {
			web, sticky, modal := targets(f)
			c.run(func() { c.connect(at, web, false) })
			c.run(func() { c.connect(at, sticky, true) })
			c.run(func() { c.connect(at, modal, false) })
			for _, to := range web {
				c.run(func() { c.hold(at, lab.Question{Protocol: lab.UDP, To: to, Patience: answerIn}) })
				c.run(func() { c.hold(at, lab.Question{Protocol: lab.TCP, To: to, Patience: answerIn}) })
			}
		}
	}
	return c
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

// connect makes one connection after the other. With affinity, all of them have the same endpoint.
func (c *clients) connect(at *lab.Namespace, list []netip.AddrPort, sticky bool) {
	pod := ""
	for n := 0; c.pause(2 * time.Millisecond); n++ {
		q := lab.Question{Protocol: lab.TCP, To: list[n%len(list)], Patience: answerIn}
		r := at.Ask(q)
		c.made.Add(1)
		switch {
		case r.Outcome != lab.Answered:
			c.fail("%s from %s: %s", q, at.Name, r)
		case !sticky:
		case pod == "":
			pod = r.Answer.Pod
		case pod != r.Answer.Pod:
			c.fail("%s from %s: %s, and before that %s", q, at.Name, r, pod)
			pod = r.Answer.Pod
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
