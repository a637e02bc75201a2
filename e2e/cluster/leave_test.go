//go:build e2e

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

const (
	leaveLimit = 60 * time.Second // of "verdict leave"
	// What the kubelet's configuration has: the critical pods have the time of the limit, and some.
	shutdownGrace         = 80 * time.Second
	shutdownGraceCritical = 70 * time.Second

	openFlows, longFlows = 200, 50 // the long ones outlast the limit
	newRate              = 50      // connections a second

	oncePort, openPort = "30082", "30083" // in testdata/far.yaml
)

// TestLeave: connections of a client outside go through node A to pods on node B, by way of a balancer. A leaves: it gets the taint of
// the autoscaler; when the balancer has seen that, its system stops, with a kubelet that shuts down gracefully; then the link goes. No
// new connection fails. No open one dies that its client ends within the limit of "verdict leave", and the others are reset when
// somebody sends. Under kube-proxy all open ones die.
func TestLeave(t *testing.T) {
	c := shared
	t.Run("kube-proxy", func(t *testing.T) {
		c.kubeProxy(t, "nftables")
		if l := c.leave(t); l.ends[lab.Dropped] == 0 {
			t.Error("no open connection died: the test did not cut the link")
		}
	})
	t.Run("verdict", func(t *testing.T) {
		c.verdict(t)
		c.must(t, "-n", "kube-system", "patch", "daemonset", "verdict", "--type", "json", "-p", fmt.Sprintf(`[{"op": "replace",
			"path": "/spec/template/spec/containers/0/lifecycle/preStop/exec/command", "value": ["/verdict", "leave", "--timeout=%s", "--reset"]}]`, leaveLimit))
		c.ready(t, "verdict")
		l := c.leave(t)
		if l.failed > 0 {
			t.Errorf("%d new connections failed, want none", l.failed)
		}
		if l.ends[lab.Answered] != openFlows-longFlows || l.ends[lab.Broken] != longFlows {
			t.Errorf("open connections: %v; want %d that their clients ended, and %d that were reset", l.ends, openFlows-longFlows, longFlows)
		}
	})
}

// left is what became of the connections.
type left struct {
	failed int                 // of new ones
	ends   map[lab.Outcome]int // of open ones; "answered": the client ended it
}

// leave takes node A out of the cluster as a machine leaves, and brings it back as another one.
func (c *cluster) leave(t *testing.T) (l left) {
	t.Helper()
	gone := c.nodes[0]
	defer c.startFar(t, c.nodes[1])()
	b := c.balance(t)
	talks := c.talk(t, b)
	client := &rate.Client{Targets: b.targets("tcp", oncePort), PerSecond: newRate, Patience: clientPatience, Do: c.outside.Do}
	stop := client.Start()

	c.must(t, "taint", "node", gone.name(), "ToBeDeletedByClusterAutoscaler=:NoSchedule")
	tainted := time.Now()
	lab.Must(t, eventually("the balancer notices", func() error { return b.leads(c.nodes[1]) }))
	moved := time.Now()
	for i, k := range talks[longFlows:] { // their clients end them one after the other, within three quarters of the limit
		time.AfterFunc(time.Duration(i)*leaveLimit*3/4/(openFlows-longFlows), k.end)
	}
	lab.Must(t, gone.system.stop())
	stopped := time.Now()
	lab.Must(t, c.place.SetDown(gone.port()))
	cut := time.Now()

	l.ends = map[lab.Outcome]int{}
	var slowest, lastReset time.Duration
	for _, k := range talks {
		<-k.ended
		if l.ends[k.outcome]++; k.outcome == lab.Broken {
			slowest, lastReset = max(slowest, k.took), max(lastReset, k.at.Sub(moved))
		}
		if k.outcome == lab.Failed {
			t.Errorf("an open connection: %v", k.err)
		}
	}
	late := 0
	made := stop()
	for _, a := range made {
		if a.Outcome == rate.Answered {
			continue
		}
		if l.failed++; a.Began.After(moved) {
			late++
		}
		t.Logf("%s %s %s %s", a.Began.UTC().Format("15:04:05.000"), a.To, a.Outcome, a.Error)
	}
	t.Logf("the balancer noticed %.0f s after the taint; the kubelet gave its lock back %.0f s later; the link went %.1f s after that",
		moved.Sub(tainted).Seconds(), stopped.Sub(moved).Seconds(), cut.Sub(stopped).Seconds())
	t.Logf("new connections: %d, %d failed, %d of them began after the balancer had noticed", len(made), l.failed, late)
	t.Logf("open connections: %d, ended by their clients %d, reset %d (the slowest took %s, the last one was %.0f s after the system began to stop), died %d",
		len(talks), l.ends[lab.Answered], l.ends[lab.Broken], slowest.Round(time.Millisecond), lastReset.Seconds(), l.ends[lab.Dropped])

	lab.Must(t, gone.end())
	lab.Must(t, gone.forget())
	lab.Must(t, c.place.SetUp(gone.port()))
	lab.Must(t, gone.start())
	c.must(t, "taint", "node", gone.name(), "ToBeDeletedByClusterAutoscaler-")
	c.must(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
	c.must(t, "delete", "pods", "-A", "--field-selector=status.phase=Failed")
	return l
}

// startFar starts servers on a node.
func (c *cluster) startFar(t *testing.T, on *node) (end func()) {
	t.Helper()
	text, err := os.ReadFile("testdata/far.yaml")
	lab.Must(t, err)
	file := filepath.Join(t.TempDir(), "far.yaml")
	lab.Must(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "NODE}", on.name()+"}")), 0o644))
	c.must(t, "apply", "-f", file)
	c.must(t, "rollout", "status", "deployment/far", "--timeout=180s")
	return func() { c.must(t, "delete", "-f", file) }
}

// balancer sends new connections to the first node whose /healthz has not failed three times in a row, and leaves open ones where they
// are. As balancers of clouds do, it keeps the client's address: it is a rule in the kernel of the client.
type balancer struct {
	c      *cluster
	failed []int // in a row, by node

	mu sync.Mutex
	to *node
}

// Addresses of the balancer; its period is one that clouds have.
const (
	balancer4, balancer6 = "203.0.113.1", "2001:db8::1"
	probePeriod          = 5 * time.Second
	probesToFail         = 3
)

// balance starts a balancer, and waits until it sends connections to the first node.
func (c *cluster) balance(t *testing.T) *balancer {
	t.Helper()
	b := &balancer{c: c, failed: make([]int, len(c.nodes))}
	lab.Must(t, c.outside.Load("table inet balancer { chain output { type nat hook output priority -100; }; }"))
	lab.Must(t, b.lead(c.nodes[0]))
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		end()
		running.Wait()
		lab.Must(t, c.outside.Load("delete table inet balancer"))
	})
	running.Go(func() {
		for ticks := time.Tick(probePeriod); ; {
			select {
			case <-ctx.Done():
				return
			case <-ticks:
			}
			if err := b.probe(ctx); err != nil {
				t.Errorf("balancer: %v", err)
			}
		}
	})
	return b
}

// probe asks all nodes.
func (b *balancer) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probePeriod)
	defer cancel()
	for i, n := range b.c.nodes {
		page, err := b.c.outside.Get(ctx, "http://"+net.JoinHostPort(n.addresses()[0].String(), "10256")+"/healthz")
		if b.failed[i]++; err == nil && page.Code == 200 {
			b.failed[i] = 0
		}
	}
	for i, n := range b.c.nodes {
		if b.failed[i] < probesToFail {
			return b.lead(n)
		}
	}
	return nil
}

// lead sends new connections to a node.
func (b *balancer) lead(n *node) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.to == n {
		return nil
	}
	b.to = n
	at := n.addresses()
	return b.c.outside.Load(fmt.Sprintf(`flush chain inet balancer output
		add rule inet balancer output ip daddr %s dnat ip to %s
		add rule inet balancer output ip6 daddr %s dnat ip6 to %s`, balancer4, at[0], balancer6, at[1]))
}

// leads is an error unless new connections go to a node.
func (b *balancer) leads(n *node) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.to != n {
		return fmt.Errorf("it sends connections to %s", b.to.name())
	}
	return nil
}

// targets are the addresses of the balancer with a port.
func (b *balancer) targets(network, port string) (list []*rate.Target) {
	for _, a := range []string{balancer4, balancer6} {
		list = append(list, &rate.Target{Network: network, Address: net.JoinHostPort(a, port)})
	}
	return list
}

// talk is an open connection on which the client asks twice a second, until it ends it.
type talk struct {
	flow  *lab.Flow
	end   context.CancelFunc
	ended chan struct{}
	// How it ended, what the last question took, and when that was over.
	outcome lab.Outcome
	took    time.Duration
	at      time.Time
	err     error
}

const talkPeriod = 500 * time.Millisecond

// talk opens connections by way of the balancer.
func (c *cluster) talk(t *testing.T, b *balancer) (list []*talk) {
	t.Helper()
	targets := b.targets("tcp", openPort)
	for i := range openFlows {
		to := netip.MustParseAddrPort(targets[i%len(targets)].Address)
		var f *lab.Flow
		lab.Must(t, eventually("the proxies serve the node port", func() error {
			var r lab.Result
			f, r = c.outside.Open(lab.Question{Protocol: lab.TCP, To: to, Patience: clientPatience})
			return r.Err
		}))
		ctx, end := context.WithCancel(t.Context())
		k := &talk{flow: f, end: end, ended: make(chan struct{})}
		list = append(list, k)
		go k.run(ctx)
	}
	return list
}

func (k *talk) run(ctx context.Context) {
	defer close(k.ended)
	defer k.flow.Close()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-time.After(talkPeriod):
		}
		began := time.Now()
		r := k.flow.Send(clientPatience)
		k.at, k.outcome, k.err = time.Now(), r.Outcome, r.Err
		if k.took = k.at.Sub(began); r.Outcome != lab.Answered {
			return
		}
	}
}
