//go:build e2e

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/load"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

const (
	clientPause    = 50 * time.Millisecond
	clientPatience = 5 * time.Second
	nodePort       = "30080"
)

// clients are loops of connections: in a pod on each node, through names of Services, and outside, through node ports.
type clients struct {
	c       *cluster
	outside *load.Loops
	asked   []*node // the nodes whose clients are asked
	before  map[string]load.Count
}

// connect starts the loops outside, and waits until all loops get answers. The loops in pods run all the time.
func (c *cluster) connect(t *testing.T) *clients {
	t.Helper()
	var targets []load.Target
	for _, n := range c.nodes {
		for i, a := range n.addresses() {
			for _, p := range []lab.Protocol{lab.TCP, lab.UDP} {
				targets = append(targets, load.Target{Protocol: p, Family: lab.Families()[i], Host: a.String(), Port: nodePort})
			}
		}
	}
	l := &clients{c: c, asked: c.nodes, outside: load.Start(targets, load.Options{
		Pause: clientPause, Patience: clientPatience, Open: c.outside.Open, Sequential: true,
	})}
	t.Cleanup(l.outside.Stop)
	l.awaitAnswered(t, 3)
	l.reset(t)
	return l
}

// awaitAnswered waits until each loop makes a number of connections without a failure.
func (l *clients) awaitAnswered(t *testing.T, connections int) {
	t.Helper()
	err := eventually("all clients get answers", func() error {
		begin, err := l.turn(connections)
		if err != nil {
			return err
		}
		now, err := l.counts()
		if err != nil {
			return err
		}
		for name, c := range now {
			if c.Failed > begin[name].Failed {
				return fmt.Errorf("%s: a connection failed at %s", name, c.LastFailure)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, l.c.state())
	}
}

// turn waits until each loop has ended the connection that it was making, and made further ones: at least 2 connections.
// It returns the counts of the beginning.
func (l *clients) turn(connections int) (begin map[string]load.Count, err error) {
	if begin, err = l.counts(); err != nil {
		return nil, err
	}
	return begin, eventually("each client makes connections", func() error {
		now, err := l.counts()
		for name, c := range now {
			if c.Asked < begin[name].Asked+connections {
				return fmt.Errorf("%s made %d", name, c.Asked-begin[name].Asked)
			}
		}
		return err
	})
}

func (l *clients) reset(t *testing.T) {
	t.Helper()
	var err error
	if l.before, err = l.counts(); err != nil {
		t.Fatal(err)
	}
}

// since returns what became of the connections since the latest reset.
func (l *clients) since(t *testing.T) map[string]load.Count {
	t.Helper()
	out, err := l.counts()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range out {
		before := l.before[name]
		c.Asked, c.Failed, c.Repeated = c.Asked-before.Asked, c.Failed-before.Failed, c.Repeated-before.Repeated
		c.Failures = c.Failures[max(0, len(c.Failures)-c.Failed):]
		out[name] = c
	}
	return out
}

// expect ends a step: the clients whose names a function accepts saw no failure and no lost packet.
func (l *clients) expect(t *testing.T, step string, spared func(name string) bool) {
	t.Helper()
	if _, err := l.turn(3); err != nil {
		t.Fatal(err)
	}
	asked, failed, repeated := 0, 0, 0
	for name, c := range l.since(t) {
		if !spared(name) {
			continue
		}
		asked, failed, repeated = asked+c.Asked, failed+c.Failed, repeated+c.Repeated
		if c.Failed > 0 {
			t.Errorf("%s: %s: %d of %d failed, the latest ones:\n\t%s", step, name, c.Failed, c.Asked, strings.Join(c.Failures, "\n\t"))
		}
	}
	t.Logf("%s: %d connections, %d failed, %d had to send a packet again", step, asked, failed, repeated)
	if repeated > 0 {
		t.Errorf("%s: %d connections had to send a packet again", step, repeated)
	}
	l.reset(t)
}

func everyone(string) bool { return true }

// counts asks all clients. Names begin with the place of the client.
func (l *clients) counts() (map[string]load.Count, error) {
	out := map[string]load.Count{}
	for name, c := range l.outside.Counts() {
		out["outside: "+name] = c
	}
	for _, n := range l.asked {
		counts, err := l.c.podCounts(n)
		if err != nil {
			return nil, err
		}
		for name, c := range counts {
			out[n.name()+": "+name] = c
		}
	}
	return out, nil
}

// podCounts asks the client on a node.
func (c *cluster) podCounts(n *node) (counts map[string]load.Count, err error) {
	at, err := c.kubectl("get", "pod", "-l", "app=client", "--field-selector", "spec.nodeName="+n.name(), "-o", "jsonpath={.items[0].status.podIP}")
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(at); err != nil {
		return nil, fmt.Errorf("the client on %s has no address yet: %w", n.name(), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	page, err := c.place.Get(ctx, "http://"+net.JoinHostPort(at, "9000"))
	if err != nil {
		return nil, fmt.Errorf("ask the client on %s: %w", n.name(), err)
	}
	return counts, json.Unmarshal([]byte(page.Body), &counts)
}
