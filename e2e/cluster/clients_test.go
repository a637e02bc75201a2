//go:build e2e

package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

const (
	clientRate     = 20 // connections a second to each target
	clientPatience = 5 * time.Second
	nodePort       = "30080"
)

// clients connect in turn to several targets: in a pod on each node, through names of Services, and outside, through node ports.
type clients struct {
	c       *cluster
	outside *rate.Client
	asked   []*node // the nodes whose clients are asked
	since   time.Time
	dropped int // as lab.QueueDrops says, at that time
}

// connect starts the client outside, and waits until all clients get answers. Those in pods run all the time.
func (c *cluster) connect(t *testing.T) *clients {
	t.Helper()
	outside := &rate.Client{Do: c.outside.Do, Sequential: true, Patience: clientPatience}
	for _, n := range c.nodes {
		for _, a := range n.addresses() {
			for _, network := range []string{"tcp", "udp"} {
				outside.Targets = append(outside.Targets, &rate.Target{Network: network, Address: net.JoinHostPort(a.String(), nodePort)})
			}
		}
	}
	outside.PerSecond = clientRate * len(outside.Targets)
	stop := outside.Start()
	t.Cleanup(func() { stop() })
	l := &clients{c: c, asked: c.nodes, outside: outside}
	l.awaitAnswered(t, 3)
	l.begin(t)
	return l
}

// awaitAnswered waits until the clients make a number of connections to each target without a failure.
func (l *clients) awaitAnswered(t *testing.T, connections int) {
	t.Helper()
	err := eventually("all clients get answers", func() error {
		begin := time.Now()
		if err := l.turn(begin, connections); err != nil {
			return err
		}
		now, err := l.counts(begin)
		for name, c := range now {
			if len(c.failures) > 0 {
				return fmt.Errorf("%s: %s", name, c.failures[0])
			}
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, l.c.state())
	}
}

// turn waits until the clients have made connections to each target that began after a time.
func (l *clients) turn(begin time.Time, connections int) error {
	return eventually("each client makes connections", func() error {
		now, err := l.counts(begin)
		for name, c := range now {
			if c.asked < connections {
				return fmt.Errorf("%s made %d", name, c.asked)
			}
		}
		return err
	})
}

// begin begins a step.
func (l *clients) begin(t *testing.T) {
	t.Helper()
	dropped, err := lab.QueueDrops()
	lab.Must(t, err)
	l.since, l.dropped = time.Now(), dropped
}

// expect ends a step: the clients whose names a function accepts saw no failure and no lost packet since the last step.
func (l *clients) expect(t *testing.T, step string, spared func(name string) bool) {
	t.Helper()
	end := time.Now()
	lab.Must(t, l.turn(end, 3))
	counts, err := l.counts(l.since)
	lab.Must(t, err)
	asked, failed, repeated := 0, 0, []string(nil)
	for name, c := range counts {
		if !spared(name) {
			continue
		}
		asked, failed = asked+c.asked, failed+len(c.failures)
		for _, r := range c.repeated {
			repeated = append(repeated, name+" "+r)
		}
		if len(c.failures) > 0 {
			const shown = 5
			t.Errorf("%s: %s: %d of %d failed, the last ones:\n\t%s", step, name, len(c.failures), c.asked,
				strings.Join(c.failures[max(0, len(c.failures)-shown):], "\n\t"))
		}
	}
	t.Logf("%s: %d connections, %d failed, %d had to send a packet again", step, asked, failed, len(repeated))
	dropped, err := lab.QueueDrops()
	lab.Must(t, err)
	if text := fmt.Sprintf("%s: this machine dropped %d packets because a queue was full; these connections had to send a packet again:\n\t%s",
		step, dropped-l.dropped, strings.Join(repeated, "\n\t")); len(repeated) > dropped-l.dropped {
		t.Error(text)
	} else if len(repeated) > 0 {
		t.Log(text)
	}
	l.since, l.dropped = end, dropped
}

func everyone(string) bool { return true }

// count is what became of the connections to a target.
type count struct {
	asked              int
	failures, repeated []string
}

// counts asks all clients for the connections that began after a time. Names begin with the place of the client.
func (l *clients) counts(since time.Time) (map[string]*count, error) {
	out := map[string]*count{}
	add := func(place string, targets []string, list []rate.Attempt) {
		for _, target := range targets {
			out[place+": "+target] = &count{}
		}
		for _, a := range list {
			name := place + ": " + a.Target
			if out[name] == nil {
				out[name] = &count{}
			}
			out[name].add(a)
		}
	}
	var outside []string
	for _, target := range l.outside.Targets {
		outside = append(outside, target.String())
	}
	add("outside", outside, l.outside.Since(since))
	for _, n := range l.asked {
		list, err := l.c.podAttempts(n, since)
		if err != nil {
			return nil, err
		}
		add(n.name(), podTargets(), list)
	}
	return out, nil
}

func (c *count) add(a rate.Attempt) {
	c.asked++
	if a.Repeated > 0 {
		c.repeated = append(c.repeated, fmt.Sprintf("%s %d times from port %d to %s: handshake %s, all %s", a.Began.UTC().Format("15:04:05.000"), a.Repeated,
			a.SourcePort, a.Server, a.Handshake.Round(time.Millisecond), a.Took.Round(time.Millisecond)))
	}
	if a.Outcome != rate.Answered {
		c.failures = append(c.failures, fmt.Sprintf("%s %s %s after %s", a.Began.UTC().Format("15:04:05.000"), a.Outcome, a.Error, a.Took.Round(time.Millisecond)))
	}
}

// podTargets are the targets of the client in a pod; see testdata/workload.yaml.
func podTargets() (list []string) {
	for _, service := range []string{"web", "near"} {
		for _, network := range []string{"tcp4", "tcp6", "udp4", "udp6"} {
			list = append(list, network+" "+service+".default.svc.cluster.local.:80")
		}
	}
	return list
}

// podAttempts asks the client on a node for its connections.
func (c *cluster) podAttempts(n *node, since time.Time) ([]rate.Attempt, error) {
	at, err := c.kubectl("get", "pod", "-l", "app=client", "--field-selector", "spec.nodeName="+n.name(), "-o", "jsonpath={.items[0].status.podIP}")
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(at); err != nil {
		return nil, fmt.Errorf("the client on %s has no address yet: %w", n.name(), err)
	}
	return rate.Fetch(net.JoinHostPort(at, strconv.Itoa(ratePort)), since, c.place.DialContext)
}
