//go:build e2e || ipvs

package fleet

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
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

// stream are new connections all the time.
type stream struct {
	client *rate.Client
	stop   func() []rate.Attempt
}

// connect makes new connections at a rate, each of which is answered once. One that waits holds up no other.
func (b *bed) connect(f lab.Family, perSecond int) *stream {
	c := &rate.Client{
		Targets: []*rate.Target{{Network: "tcp", Address: vip(f)}}, PerSecond: perSecond, Patience: 5 * time.Second, KernelPorts: true,
		Do: b.client.Do, Answer: func(c net.Conn) (string, error) {
			_ = c.(*net.TCPConn).SetLinger(0) // as abort does
			return "", exchange(c, c, 5*time.Second)
		},
	}
	return &stream{c, c.Start()}
}

// made is how many connections there were so far.
func (s *stream) made() int { return s.client.Made() }

// end ends the stream. It returns the number of connections a second, how many were begun after a time, how many of
// these were not answered within a second, and the longest that one of these took.
func (s *stream) end(after time.Time) (perSecond float64, began, late int, longest time.Duration) {
	list := s.stop()
	perSecond = float64(len(list)) / list[len(list)-1].Began.Sub(list[0].Began).Seconds()
	for _, a := range list {
		if a.Began.Before(after) {
			continue
		}
		began++
		longest = max(longest, a.Took)
		if a.Outcome != rate.Answered || a.Took > time.Second {
			late++
		}
	}
	return perSecond, began, late, longest
}
