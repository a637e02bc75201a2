package rate

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Client makes connections to its targets in turn.
type Client struct {
	Targets   []*Target
	PerSecond int           // to all targets together
	Patience  time.Duration // for a whole connection
	// Sequential leaves a target out while a connection to it is under way.
	Sequential bool
	// LowPort and HighPort bound the source ports. Zero: those between programs of the system and node ports.
	LowPort, HighPort uint16
	// KernelPorts lets the kernel choose source ports. Records of connections that fail then lack it.
	KernelPorts bool
	// Do calls a function in the client's network namespace; nil: in that of the process.
	Do func(func() error) error
	// Answer gets the answer over a connection; nil: it sends a request, and reads one line to the end of the connection.
	Answer func(net.Conn) (server string, err error)

	mu       sync.Mutex
	attempts []Attempt
	nextPort uint16
}

// Run makes connections until the context ends, and returns when all have ended.
func (c *Client) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	began := time.Now()
	for n := 0; ; n++ {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(c.PerSecond))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		target := c.Targets[n%len(c.Targets)]
		if !target.running.CompareAndSwap(false, true) && c.Sequential {
			continue
		}
		running.Go(func() {
			a := c.Connect(target)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.attempts = append(c.attempts, a)
			target.running.Store(false)
		})
	}
}

// Start makes connections until stop is called, which waits for their ends and returns them in order.
func (c *Client) Start() (stop func() []Attempt) {
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	return func() []Attempt {
		end()
		running.Wait()
		list := c.Since(time.Time{})
		slices.SortFunc(list, func(a, b Attempt) int { return a.Began.Compare(b.Began) })
		return list
	}
}

// Made is how many connections have ended.
func (c *Client) Made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.attempts)
}

// Since returns the connections that have ended and began at a time or later.
func (c *Client) Since(begin time.Time) (list []Attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.attempts {
		if !a.Began.Before(begin) {
			list = append(list, a)
		}
	}
	return list
}

// port is the next source port. The client chooses it, so that it knows it for connections that fail. By default, a port returns
// after 100 seconds at 200 connections a second.
func (c *Client) port() uint16 {
	low, high := cmp.Or(c.LowPort, 10_000), cmp.Or(c.HighPort, 30_000)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nextPort++; c.nextPort < low || c.nextPort >= high {
		c.nextPort = low
	}
	return c.nextPort
}

// Connect makes one connection.
func (c *Client) Connect(to *Target) (a Attempt) {
	answer := c.Answer
	if answer == nil {
		answer = ask
	}
	a = Attempt{Began: time.Now(), Target: to.String()}
	deadline := a.Began.Add(c.Patience)
	conn, err := c.dial(&a, to, deadline)
	if err == nil {
		early := 0
		if a.Handshake = time.Since(a.Began); a.Handshake < lab.FirstTimeout {
			early, _ = lab.Retransmits(conn) // on an open socket it cannot fail
		}
		err = conn.SetDeadline(deadline)
		if err == nil {
			a.Server, err = answer(conn)
		}
		a.Repeated, _ = lab.Retransmits(conn)
		a.Repeated -= early
		_ = conn.Close()
	}
	a.Outcome = outcomeOf(err, a.Handshake)
	a.Took = time.Since(a.Began)
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// dial takes the next port that is free.
func (c *Client) dial(a *Attempt, to *Target, deadline time.Time) (conn net.Conn, err error) {
	do := c.Do
	if do == nil {
		do = func(fn func() error) error { return fn() }
	}
	address := to.address()
	a.To, _ = netip.ParseAddrPort(address) // zero for a name, until it is resolved
	for range 10 {
		if !c.KernelPorts {
			a.SourcePort = c.port()
		}
		d := net.Dialer{Deadline: deadline, LocalAddr: &net.TCPAddr{Port: int(a.SourcePort)}, KeepAlive: -1}
		if strings.HasPrefix(to.Network, "udp") {
			d.LocalAddr = &net.UDPAddr{Port: int(a.SourcePort)}
		}
		err = do(func() (err error) {
			conn, err = lab.Dial(context.Background(), &d, to.Network, address)
			return err
		})
		if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	address = conn.RemoteAddr().String()
	a.To, _ = netip.ParseAddrPort(address)
	if to.Once {
		to.known.Store(&address)
	}
	return conn, nil
}

// FirstLine reads one line. Over TCP, the server sends it without a request and goes on to answer. The connection then ends by a
// reset, so that its port is free.
func FirstLine(conn net.Conn) (server string, err error) {
	if tcp, stream := conn.(*net.TCPConn); stream {
		err = tcp.SetLinger(0)
	} else {
		_, err = conn.Write([]byte("?\n"))
	}
	if err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// ask sends a request and reads the answer, which is one line. A connection of TCP ends after it.
func ask(conn net.Conn) (server string, err error) {
	if _, err := conn.Write([]byte("?\n")); err != nil {
		return "", err
	}
	answer := bufio.NewReader(conn)
	line, err := answer.ReadString('\n')
	if _, stream := conn.(*net.TCPConn); stream && err == nil {
		_, err = io.Copy(io.Discard, answer)
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(line, "\n"), nil
}
