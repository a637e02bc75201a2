package rate

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Client makes connections to its targets in turn.
type Client struct {
	Targets   []netip.AddrPort
	PerSecond int
	Patience  time.Duration // for a whole connection

	mu       sync.Mutex
	attempts []Attempt
	nextPort uint16
}

// The client chooses its ports, so that it knows them for connections that fail. Below are programs of the system, above
// are node ports. A port returns after 100 seconds at 200 connections a second.
const lowPort, highPort = 10000, 30000

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
		running.Go(func() { c.record(c.connect(target)) })
	}
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

func (c *Client) record(a Attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts = append(c.attempts, a)
}

func (c *Client) port() uint16 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nextPort++; c.nextPort < lowPort || c.nextPort >= highPort {
		c.nextPort = lowPort
	}
	return c.nextPort
}

// connect makes one connection.
func (c *Client) connect(to netip.AddrPort) (a Attempt) {
	a = Attempt{Began: time.Now(), To: to, Outcome: Answered}
	deadline := a.Began.Add(c.Patience)
	conn, err := c.dial(&a, deadline)
	if err != nil {
		a.Outcome = handshakeOutcome(err)
	} else {
		a.Handshake = time.Since(a.Began)
		if a.Server, err = ask(conn, deadline); err != nil {
			a.Outcome = answerOutcome(err)
		}
		err = errors.Join(err, conn.Close())
	}
	a.Took = time.Since(a.Began)
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// dial takes the next port that is free.
func (c *Client) dial(a *Attempt, deadline time.Time) (conn net.Conn, err error) {
	for range 10 {
		a.SourcePort = c.port()
		d := net.Dialer{Deadline: deadline, LocalAddr: &net.TCPAddr{Port: int(a.SourcePort)}, KeepAlive: -1}
		conn, err = d.Dial("tcp", a.To.String())
		if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return conn, err
		}
	}
	return nil, err
}

// ask sends a request and reads the answer to its end. An answer is one line.
func ask(conn net.Conn, deadline time.Time) (server string, err error) {
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("?\n")); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}
	if len(text) == 0 || text[len(text)-1] != '\n' {
		return "", io.ErrUnexpectedEOF
	}
	return string(text[:len(text)-1]), nil
}
