package clients

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Held is a connection that stays open.
type Held struct {
	Client
	answer lab.Answer

	mu   sync.Mutex
	flow *lab.Flow
	node *lab.Namespace
}

// Hold opens a connection of each client.
func Hold(t *testing.T, w *lab.World, clients []Client) (list []*Held) {
	t.Helper()
	for _, c := range clients {
		flow, answer := w.At(t, c.Place).Hold(t, c.Question)
		list = append(list, &Held{Client: c, flow: flow, answer: answer, node: w.Node})
	}
	return list
}

// ask sends a request over the connection. It returns what is wrong with the answer; empty: nothing. For a late answer, it
// adds what the node knew of the connection while it waited.
func (h *Held) ask() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	patience := h.Question.Patience
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
func (h *Held) state() string {
	out, err := h.node.Command("sh", "-c", "conntrack -L -f ipv4 2>&1 | grep ESTABLISHED; conntrack -L -f ipv6 2>&1 | grep ESTABLISHED; "+
		"cat /proc/net/ip_vs; grep ESTABLISHED /proc/net/ip_vs_conn; ip neigh; ip -s -6 neigh; nft list tables")
	if err != nil {
		return fmt.Sprintf("; the node's state is unknown: %v", err)
	}
	return "; the node at that time:\n" + out
}

// Use sends requests over the connections all the time. The kernel forgets a UDP flow after 30 seconds without a packet.
func (l *Loops) Use(list []*Held) {
	l.running.Go(func() {
		for {
			for _, h := range list {
				if what := h.ask(); what != "" {
					l.mu.Lock()
					l.failed = append(l.failed, l.fail(h.Client, time.Now(), "the open connection: "+what))
					l.mu.Unlock()
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

// ExpectAlive expects that the same endpoints still answer.
func ExpectAlive(t *testing.T, list []*Held, when string) {
	t.Helper()
	for _, h := range list {
		if what := h.ask(); what != "" {
			t.Errorf("%s: %s: %s", when, h.Client, what)
		}
	}
}
