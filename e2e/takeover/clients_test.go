//go:build e2e || ipvs

package takeover

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// client connects to one address from one place.
type client struct {
	place    string
	question lab.Question
}

// newClients returns clients for each way to reach the Service: cluster IP, node port and load-balancer IP, in both
// families, over TCP and UDP.
func newClients(t *testing.T) (list []client) {
	t.Helper()
	for _, f := range lab.Families() {
		for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
			for i, c := range []struct {
				place, name string
				port        uint16
			}{
				{"b", "VIP1", servicePort}, {lab.Node, "VIP1", servicePort}, {lab.Outside, "NODE", nodePort}, {lab.Outside, "LB1", servicePort},
			} {
				to := address(t, f, c.name, c.port)
				list = append(list, client{c.place, lab.Question{Protocol: protocol, Ports: lab.OwnPorts(i), To: to, Patience: patience}})
			}
		}
	}
	return list
}

// loops are clients that connect again and again.
type loops struct {
	stop     chan struct{}
	running  sync.WaitGroup
	asked    atomic.Int64
	failed   atomic.Int64
	mu       sync.Mutex
	phase    string    // what happens now
	failures []failure // the first ones
}

func startLoops(t *testing.T, w *lab.World, clients []client) *loops {
	t.Helper()
	l := &loops{stop: make(chan struct{})}
	for _, c := range clients {
		place := w.At(t, c.place)
		l.running.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				case <-time.After(pause):
				}
				l.asked.Add(1)
				l.ask(place, c)
			}
		})
	}
	return l
}

// ask makes one connection. One of TCP that had to send a packet again has lost it, and counts as a failure.
func (l *loops) ask(place *lab.Namespace, c client) {
	flow, r := place.Open(c.question)
	if flow == nil {
		l.fail(c, r.String())
		return
	}
	defer flow.Close()
	if c.question.Protocol != lab.TCP {
		return
	}
	if n, err := flow.Retransmits(); n > 0 || err != nil {
		l.fail(c, fmt.Sprintf("answered, after %d packets were sent again: %v", n, err))
	}
}

// failure is a connection that failed, and when.
type failure struct {
	at   time.Time
	text string
}

func (f failure) String() string { return f.at.UTC().Format("15:04:05.000") + " " + f.text }

func (l *loops) fail(c client, what string) {
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failures) < 10 {
		l.failures = append(l.failures, failure{time.Now(), fmt.Sprintf("(%s) from %s: %s: %s", l.phase, c.place, c.question, what)})
	}
}

// begin names what happens from now on.
func (l *loops) begin(run int, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = fmt.Sprintf("run %d, %s since %s", run+1, what, time.Now().UTC().Format("15:04:05.000"))
}

// report tells how far a long test has come.
func (l *loops) report(t *testing.T, run int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("before run %d: %d connections, %d failed: %s", run+1, l.asked.Load(), l.failed.Load(), l.failures)
}

// end ends the loops and reports what failed.
func (l *loops) end(t *testing.T, dir string) {
	t.Helper()
	close(l.stop)
	l.running.Wait()
	t.Logf("%d connections, %d failed", l.asked.Load(), l.failed.Load())
	if l.asked.Load() == 0 {
		t.Error("the loops made no connection")
	}
	for _, f := range l.failures {
		t.Errorf("%s\n%s", f, logsAt(t, dir, f.at))
	}
}

// logsAt returns what the proxies logged in the second of a failure and in the one before, and when its question was asked.
func logsAt(t *testing.T, dir string, at time.Time) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	var seconds []string
	for _, ago := range []time.Duration{0, time.Second, patience - time.Second, patience, patience + time.Second} {
		seconds = append(seconds, at.Add(-ago).UTC().Format("15:04:05."))
	}
	var out strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if slices.ContainsFunc(seconds, func(s string) bool { return strings.Contains(line[:min(len(line), 60)], s) }) {
				fmt.Fprintf(&out, "  %s: %.300s\n", filepath.Base(file), strings.TrimSpace(line))
			}
		}
	}
	return out.String()
}

// held is a connection that stays open.
type held struct {
	client
	answer lab.Answer

	mu   sync.Mutex
	flow *lab.Flow
	node *lab.Namespace
}

func hold(t *testing.T, w *lab.World, clients []client) (list []*held) {
	t.Helper()
	for _, c := range clients {
		flow, answer := w.At(t, c.place).Hold(t, c.question)
		list = append(list, &held{client: c, flow: flow, answer: answer, node: w.Node})
	}
	return list
}

// ask sends a request over the connection. It returns what is wrong with the answer; empty: nothing. Of an answer that is
// late, it tells what the node knew of the connection meanwhile.
func (h *held) ask() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, state := h.flow.Send(patience/4), ""
	if r.Outcome == lab.Dropped {
		state = h.state()
		r = h.flow.Receive(patience * 3 / 4)
	}
	if r.Outcome != lab.Answered || r.Answer.Name() != h.answer.Name() {
		return fmt.Sprintf("%s, want an answer of %s%s", r, h.answer.Name(), state)
	}
	return ""
}

// state returns what the node knows of open connections: connection tracking, IPVS with addresses and ports in hexadecimal
// digits, and neighbors.
func (h *held) state() string {
	out, err := h.node.Command("sh", "-c", "conntrack -L -f ipv4 2>&1 | grep ESTABLISHED; conntrack -L -f ipv6 2>&1 | grep ESTABLISHED; "+
		"cat /proc/net/ip_vs; grep ESTABLISHED /proc/net/ip_vs_conn; ip neigh; ip -s -6 neigh; nft list tables")
	if err != nil {
		return fmt.Sprintf("; the node's state is unknown: %v", err)
	}
	return "; the node at that time:\n" + out
}

// use sends requests over the connections all the time. The kernel forgets a UDP flow after 30 seconds without a packet.
func (l *loops) use(list []*held) {
	l.running.Go(func() {
		for {
			for _, h := range list {
				if what := h.ask(); what != "" {
					l.fail(h.client, "the open connection: "+what)
				}
			}
			select {
			case <-l.stop:
				return
			case <-time.After(time.Second):
			}
		}
	})
}

// expectAlive expects that the same endpoints still answer.
func expectAlive(t *testing.T, list []*held, when string) {
	t.Helper()
	for _, h := range list {
		if what := h.ask(); what != "" {
			t.Errorf("%s: %s from %s: %s", when, h.question, h.place, what)
		}
	}
}

// waitServed waits until all clients get an answer.
func waitServed(t *testing.T, w *lab.World, clients []client) {
	t.Helper()
	for _, c := range clients {
		for end := time.Now().Add(10 * time.Second); w.At(t, c.place).Ask(c.question).Outcome != lab.Answered; {
			if time.Now().After(end) {
				t.Fatalf("%s from %s gets no answer", c.question, c.place)
			}
		}
	}
}
