package health

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// headerTimeout limits how long a client may take to send its request header.
	headerTimeout = 10 * time.Second
	// maxConnections limits the connections of one Limiter. A probe takes a few milliseconds.
	maxConnections = 256
)

// NewServer returns a server for clients that nobody knows: each connection gets one answer and ends. longest limits how
// long the request and its answer may take. Without keep-alive, no connection waits for a next request, and no load
// balancer sends one at the moment when the server gives up waiting.
func NewServer(h http.Handler, longest time.Duration) *http.Server {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: longest, WriteTimeout: longest, IdleTimeout: headerTimeout,
	}
	s.SetKeepAlivesEnabled(false)
	return s
}

// Limiter bounds the number of open connections of some listeners together. Every new connection is accepted at once. If
// there are too many, the limiter closes the oldest connection of the address that has the most. So a client that
// opens thousands of connections closes its own, and a probe from another address gets its answer.
type Limiter struct {
	mu   sync.Mutex
	open []*limited // the oldest first
	from map[netip.Addr]int
}

// NewLimiter returns a limiter without connections.
func NewLimiter() *Limiter { return &Limiter{from: map[netip.Addr]int{}} }

// Limit returns a listener whose connections count.
func (l *Limiter) Limit(inner net.Listener) net.Listener { return &limitedListener{inner, l} }

type limitedListener struct {
	net.Listener
	limiter *Limiter
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	// Errors do not matter here: what cannot be parsed or closed counts under the zero address, or is already closed.
	from, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	accepted := &limited{Conn: c, limiter: l.limiter, from: from.Addr()}
	if extra := l.limiter.add(accepted); extra != nil {
		_ = extra.Close()
	}
	return accepted, nil
}

// limited is a connection that counts until it is closed.
type limited struct {
	net.Conn
	limiter *Limiter
	from    netip.Addr
}

// Close implements net.Conn.
func (c *limited) Close() error {
	c.limiter.mu.Lock()
	c.limiter.forget(c)
	c.limiter.mu.Unlock()
	return c.Conn.Close()
}

// add counts a new connection. It returns the one to close, if there are too many.
func (l *Limiter) add(c *limited) (extra *limited) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) == maxConnections {
		extra = l.worst()
		l.forget(extra)
	}
	l.open = append(l.open, c)
	l.from[c.from]++
	return extra
}

// worst is the oldest connection of the address that has the most.
func (l *Limiter) worst() *limited {
	worst := l.open[0]
	for _, c := range l.open[1:] {
		if l.from[c.from] > l.from[worst.from] {
			worst = c
		}
	}
	return worst
}

func (l *Limiter) forget(c *limited) {
	i := slices.Index(l.open, c)
	if i < 0 {
		return // it was closed before
	}
	l.open = slices.Delete(l.open, i, i+1)
	if l.from[c.from]--; l.from[c.from] == 0 {
		delete(l.from, c.from)
	}
}
