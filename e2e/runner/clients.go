package runner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

const (
	// patience is how long it may take until an expectation is met.
	patience = 10 * time.Second
	// pollPause is the pause between two attempts.
	pollPause = 20 * time.Millisecond
	// answerPatience is the timeout of connections that should be answered, silencePatience of those that should not.
	answerPatience  = time.Second
	silencePatience = 300 * time.Millisecond
)

// clients make connections, and remember them.
type clients struct {
	family lab.Family
	world  *lab.World
	proxy  *proxy
	addrs  map[netip.Addr]bool // of the node
	flows  map[string]*lab.Flow
	loops  map[string]*loop
	crowds map[string]crowd
	chosen map[string]string // endpoints that probes remember with "as"
}

// loop is a client that connects again and again.
type loop struct {
	*rate.Client
	begun time.Time
	end   func() []rate.Attempt // stops the client and waits for its last connection
}

// crowd maps each client to the endpoint that it got.
type crowd map[netip.Addr]string

// readAddresses reads the addresses of the node, which may change while a scenario runs.
func (c *clients) readAddresses() error {
	list, _, err := c.world.Node.Addresses()
	c.addrs = map[netip.Addr]bool{}
	for _, p := range list {
		c.addrs[p.Addr()] = true
	}
	return err
}

// address is the target's address and port in the bed's family. The parser knows its name.
func (c *clients) address(t scenario.Target) netip.AddrPort {
	return lab.AddressPort(c.family, t.Name, t.Port)
}

// question is a call in the bed's family, and the namespace of its client.
func (c *clients) question(call scenario.Call) (lab.Question, *lab.Namespace, error) {
	place, err := c.world.Place(call.From)
	return lab.Question{Protocol: call.Protocol, To: c.address(call.To), Patience: answerPatience}, place, err
}

// until tries until there is no error or patience ends.
func until(try func() error) error { return within(patience, try) }

// within is until with a patience of its own.
func within(patience time.Duration, try func() error) error {
	var err error
	for end := time.Now().Add(patience); ; time.Sleep(pollPause) {
		if err = try(); err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w (last of all attempts within %s)", err, patience)
		}
	}
}

// good fails unless an expected endpoint answered and saw the expected source address.
func (c *clients) good(r lab.Result, want []string, source string) error {
	if r.Outcome != lab.Answered || !slices.Contains(want, r.Answer.Name()) {
		return fmt.Errorf("got %s, not %s", r, strings.Join(want, " "))
	}
	switch {
	case source == "client" && r.Answer.Source != r.Client:
		return fmt.Errorf("got %s, but the client is %s", r, r.Client)
	case source == "node" && !c.addrs[r.Answer.Source]:
		return fmt.Errorf("got %s, which is not an address of the node", r)
	}
	if name, isName := strings.CutPrefix(source, "$"); isName {
		if want := lab.Address(c.family, name); r.Answer.Source != want {
			return fmt.Errorf("got %s, but %s is %s", r, source, want)
		}
	}
	return nil
}
