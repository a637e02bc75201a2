//go:build e2e || ipvs

package fleet

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// registry has the servers' ends of connections, by the client's address.
type registry struct {
	mu    sync.Mutex
	conns map[string]net.Conn
}

func newRegistry() *registry { return &registry{conns: map[string]net.Conn{}} }

// close ends the connections whose clients are cut off.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		abort(c)
	}
}

func (r *registry) of(client net.Conn) net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns[client.LocalAddr().String()]
}

// serve starts the servers: they send back what they get.
func (b *bed) serve() {
	b.t.Helper()
	for i := range endpoints {
		b.ip(b.servers, fmt.Sprintf("addr add %s/24 dev eth0", endpoint(lab.IPv4, i)), fmt.Sprintf("addr add %s/64 dev eth0 nodad", endpoint(lab.IPv6, i)))
	}
	b.ip(b.servers, "route add default via 10.10.0.1", "route add default via fd00:10::1")
	b.servers.MustDo(b.t, func() error {
		l, err := net.Listen("tcp", ":8080")
		if err != nil {
			return err
		}
		b.t.Cleanup(func() { l.Close(); b.open.close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go b.open.echo(c)
			}
		}()
		return nil
	})
}

func (r *registry) echo(c net.Conn) {
	at := c.RemoteAddr().String()
	r.mu.Lock()
	r.conns[at] = c
	r.mu.Unlock()
	_, _ = io.Copy(c, c)
	r.mu.Lock()
	if r.conns[at] == c {
		delete(r.conns, at)
	}
	r.mu.Unlock()
	c.Close()
}

// dial makes a connection that has been answered once. The thread is in the client's namespace.
func dial(f lab.Family, patience time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", vip(f), patience)
	if err == nil {
		if err = exchange(c, c, patience); err == nil {
			return c, nil
		}
		abort(c)
	}
	return nil, err
}

// abort closes a connection without leaving its port in use.
func abort(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// exchange sends a byte into one end and waits until it arrives at the other one.
func exchange(from, to net.Conn, patience time.Duration) error {
	if _, err := from.Write([]byte("x")); err != nil {
		return err
	}
	if err := to.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := io.ReadFull(to, make([]byte, 1))
	return err
}

// held are connections that stay open. Half of the clients ask, and the servers push to the others.
type held struct {
	bed            *bed
	asking, silent []net.Conn
}

func (b *bed) hold(f lab.Family, n int) *held {
	b.t.Helper()
	h := &held{bed: b}
	b.client.MustDo(b.t, func() error {
		for i := range n {
			c, err := dial(f, 10*time.Second)
			if err != nil {
				return fmt.Errorf("connection %d of %d: %w", i, n, err)
			}
			if b.t.Cleanup(func() { abort(c) }); i%2 == 0 {
				h.asking = append(h.asking, c)
			} else {
				h.silent = append(h.silent, c)
			}
		}
		return nil
	})
	return h
}

// use sends over all connections at once: clients ask, and servers push to silent clients. It returns how many of each are
// lost, and leaves those out from then on.
func (h *held) use(patience time.Duration) (asking, silent int) {
	h.asking, asking = each(h.asking, func(c net.Conn) error { return exchange(c, c, patience) })
	h.silent, silent = each(h.silent, func(c net.Conn) error {
		if server := h.bed.open.of(c); server != nil {
			return exchange(server, c, patience)
		}
		return net.ErrClosed
	})
	return asking, silent
}

func each(list []net.Conn, do func(net.Conn) error) (good []net.Conn, lost int) {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, c := range list {
		all.Go(func() { errs[i] = do(c) })
	}
	all.Wait()
	for i, c := range list {
		if errs[i] == nil {
			good = append(good, c)
		}
	}
	return good, len(list) - len(good)
}

// attempt is a new connection.
type attempt struct {
	began time.Time
	took  time.Duration
	err   error
}

// stream are new connections all the time.
type stream struct {
	stop    chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex
	list    []attempt
}

// connect makes new connections at a rate, by many clients: one that waits holds up no other.
func (b *bed) connect(f lab.Family, rate int) *stream {
	const clients = 100
	s := &stream{stop: make(chan struct{})}
	begin := make(chan struct{})
	for range clients {
		s.running.Go(func() {
			_ = b.client.Do(func() error {
				for range begin {
					a := attempt{began: time.Now()}
					c, err := dial(f, 5*time.Second)
					if a.took, a.err = time.Since(a.began), err; err == nil {
						abort(c)
					}
					s.mu.Lock()
					s.list = append(s.list, a)
					s.mu.Unlock()
				}
				return nil
			})
		})
	}
	s.running.Go(func() {
		defer close(begin)
		began := time.Now() // a ticker would leave out those for which a busy machine has no time
		for n := 1; ; n++ {
			select {
			case <-s.stop:
				return
			case <-time.After(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(rate)))):
				begin <- struct{}{}
			}
		}
	})
	return s
}

// made is how many connections there were so far.
func (s *stream) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list)
}

// end ends the stream. It returns the number of connections a second, how many were begun after a time, how many of
// these were not answered within a second, and the longest that one of these took.
func (s *stream) end(after time.Time) (rate float64, began, late int, longest time.Duration) {
	close(s.stop)
	s.running.Wait()
	slices.SortFunc(s.list, func(a, b attempt) int { return a.began.Compare(b.began) })
	rate = float64(len(s.list)) / s.list[len(s.list)-1].began.Sub(s.list[0].began).Seconds()
	for _, a := range s.list {
		if a.began.Before(after) {
			continue
		}
		began++
		longest = max(longest, a.took)
		if a.err != nil || a.took > time.Second {
			late++
		}
	}
	return rate, began, late, longest
}
