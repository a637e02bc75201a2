package runner

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

const (
	// connectPatience is the timeout of TCP connections that should be answered. When many connect at the same time, an
	// emulated processor needs more than a second for one.
	connectPatience = 3 * time.Second
	// errorPatience is the timeout of connections that should end with an ICMP error. Over virtual links the error
	// arrives while connect still holds the socket. The kernel then keeps it and reports it with the next SYN, a second
	// later.
	errorPatience = 2500 * time.Millisecond
	// leastConnections is how many connections every probe makes that expects answers: enough to find an endpoint that
	// should not answer.
	leastConnections = 20
	// mostConnections is how many connections a probe makes at most until all expected endpoints have answered. With
	// four endpoints, the probability that all connections miss one of them is 10^-37.
	mostConnections = 300
	// refusals is how many concurrent connections must be refused, silences how many must get no answer.
	refusals = 6
	silences = 3
)

// probe tries until the expectation is met.
func (c *clients) probe(p *scenario.Probe) error {
	return within(cmp.Or(p.Within, patience), func() error {
		if err := c.probeOnce(p); err != nil {
			return err
		}
		return c.explains(p)
	})
}

// probeOnce checks once whether the expectation is met.
func (c *clients) probeOnce(p *scenario.Probe) error {
	q, place, err := c.question(p.Call)
	if err != nil {
		return err
	}
	switch p.Outcome {
	case lab.Answered:
		if q.Protocol == lab.TCP {
			q.Patience = connectPatience
		}
		return c.answered(place, q, &p.Expect)
	case lab.Dropped:
		q.Patience = silencePatience
		return all(place, q, silences, lab.Dropped)
	}
	q.Patience = errorPatience
	return all(place, q, refusals, p.Outcome)
}

// all makes n connections at the same time. All must have the same outcome.
func all(place *lab.Namespace, q lab.Question, n int, want lab.Outcome) error {
	results := make([]lab.Result, n)
	var running sync.WaitGroup
	for i := range results {
		running.Go(func() { results[i] = place.Ask(q) })
	}
	running.Wait()
	for _, r := range results {
		if r.Outcome != want {
			return fmt.Errorf("got %s", r)
		}
	}
	return nil
}

// answered makes connections until every expected endpoint has answered. No other endpoint may answer.
func (c *clients) answered(place *lab.Namespace, q lab.Question, e *scenario.Expect) error {
	want := e.Backends
	if e.Ref != "" {
		one, ok := c.chosen[e.Ref]
		if !ok {
			return fmt.Errorf("no earlier step has remembered an endpoint with \"as %s\"", e.Ref)
		}
		want = []string{one}
	}
	seen := map[string]int{}
	err := place.Do(func() error {
		for i := 0; i < mostConnections && (i < leastConnections || !e.OneOf && len(seen) < len(want)); i++ {
			r := lab.Ask(q)
			if err := c.good(r, want, e.Source); err != nil {
				return fmt.Errorf("%w (connection %d)", err, i+1)
			}
			seen[r.Answer.Name()]++
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case e.OneOf && len(seen) > 1:
		return fmt.Errorf("got answers from %v, not always from the same endpoint", seen)
	case !e.OneOf && len(seen) < len(want):
		return fmt.Errorf("got answers only from %v", seen)
	}
	if e.As != "" {
		for name := range seen {
			c.chosen[e.As] = name
		}
	}
	return nil
}

// open opens a flow. It must have the expected outcome.
func (c *clients) open(do *scenario.Open) error {
	q, place, err := c.question(do.Call)
	if err != nil {
		return err
	}
	return until(func() error {
		f, r := place.OpenAndAsk(q)
		if f == nil {
			return fmt.Errorf("open the flow: %s", r)
		}
		var err error
		if do.Outcome == lab.Answered {
			err = c.good(r, do.Backends, do.Source)
		} else if r.Outcome != do.Outcome {
			err = fmt.Errorf("got %s", r)
		}
		if err != nil {
			f.Close()
			return err
		}
		if do.As != "" {
			c.chosen[do.As] = r.Answer.Name()
		}
		c.flows[do.Flow] = f
		return nil
	})
}

// send sends another request over a flow.
func (c *clients) send(do *scenario.Send) error {
	f, ok := c.flows[do.Flow]
	if !ok {
		return fmt.Errorf("no flow is called %s", do.Flow)
	}
	want := do.Backends
	if do.Ref != "" {
		want = []string{c.chosen[do.Ref]}
	}
	return until(func() error {
		if do.Outcome == lab.Answered {
			return c.good(f.Send(answerPatience), want, do.Source)
		}
		if r := f.Send(silencePatience); r.Outcome != do.Outcome {
			return fmt.Errorf("got %s", r)
		}
		return nil
	})
}

// loop starts a client that connects again and again.
func (c *clients) loop(do *scenario.Loop) error {
	q, place, err := c.question(do.Call)
	if err != nil {
		return err
	}
	l := &loop{begun: time.Now(), Client: &rate.Client{
		Targets:   []*rate.Target{{Network: q.Protocol.String(), Address: q.To.String()}},
		PerSecond: 1000, Sequential: true, KernelPorts: true, Patience: q.Patience, Do: place.Do, Answer: rate.FirstLine,
	}}
	l.end = sync.OnceValue(l.Start())
	c.loops[do.Name] = l
	return nil
}

const (
	// fewestInLoop is how many connections a loop must make at least, so that its result means something.
	fewestInLoop = 50
	// loopPatience is how long a loop may take to make them.
	loopPatience = 30 * time.Second
)

// endLoop ends a loop and looks at its connections.
func (c *clients) endLoop(do *scenario.EndLoop) error {
	l, ok := c.loops[do.Name]
	if !ok {
		return fmt.Errorf("no loop is called %s", do.Name)
	}
	for l.Made() < fewestInLoop && c.proxy.err() == nil && time.Since(l.begun) < loopPatience {
		time.Sleep(pollPause)
	}
	var failed []string
	list := l.end()
	for i, a := range list {
		if a.Outcome != rate.Answered {
			failed = append(failed, fmt.Sprintf("connection %d was %s: %s", i+1, a.Outcome, a.Error))
		}
	}
	switch {
	case len(list) < fewestInLoop:
		return fmt.Errorf("only %d connections were made", len(list))
	case do.Failures && len(failed) == 0:
		return fmt.Errorf("none of %d connections failed", len(list))
	case len(failed) > 0 && !do.Failures:
		return fmt.Errorf("%s (%d of %d failed)", strings.Join(failed[:min(len(failed), 5)], "; "), len(failed), len(list))
	}
	return nil
}
