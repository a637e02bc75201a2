package health

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// patience is how long the tests wait for what must happen.
const patience = 3 * time.Minute

// connect opens connections from an address to a server. It sends a text on each.
func connect(t *testing.T, n int, from string, server net.Addr, text string) (list []net.Conn) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range n {
		c, err := d.Dial("tcp", server.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).SetLinger(0) // its port is free again at once, for the tests that listen
		t.Cleanup(func() { c.Close() })
		list = append(list, c)
		_, _ = c.Write([]byte(text)) // the server may have closed it
	}
	return list
}

// unclosed counts the connections that the other side has not closed.
func unclosed(list []net.Conn) (n int) {
	for _, c := range list {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			n++
		}
	}
	return n
}

// TestProbeAmongStrangers: the server waits for its clients without end. A probe gets its answer while strangers hold
// as many connections as there may be, and other clients keep theirs.
func TestProbeAmongStrangers(t *testing.T) {
	for _, tt := range []struct{ what, strangers, others, probe string }{
		{"strangers at another address than the probe", "127.0.0.2", "127.0.0.3", "127.0.0.1"},
		{"strangers at the address of the probe", "127.0.0.1", "127.0.0.3", "127.0.0.1"},
	} {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		limiter := NewLimiter()
		server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		go server.Serve(limiter.Limit(l)) // it ends with the test
		t.Cleanup(func() { server.Close() })

		others := connect(t, 40, tt.others, l.Addr(), "")
		strangers := connect(t, 300, tt.strangers, l.Addr(), "")
		probe := connect(t, 1, tt.probe, l.Addr(), "GET / HTTP/1.1\r\nHost: node\r\n\r\n")[0]
		_ = probe.SetReadDeadline(time.Now().Add(patience))
		r, err := http.ReadResponse(bufio.NewReader(probe), nil)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%s: the probe gets %v: %v", tt.what, r, err)
		}
		if n := unclosed(others); n != len(others) {
			t.Errorf("%s: %d of %d connections of others are left", tt.what, n, len(others))
		}
		const left = maxConnections - 40 - 1
		end := time.Now().Add(patience)
		for n := unclosed(strangers); n != left; n = unclosed(strangers) {
			if time.Now().After(end) {
				t.Fatalf("%s: strangers hold %d connections, want %d", tt.what, n, left)
			}
		}
	}
}

// TestAnsweredConnectionsEnd: a client that has its answer cannot hold its connection, and strangers cannot hold more
// connections to all servers together than there may be.
func TestAnsweredConnectionsEnd(t *testing.T) {
	s, _ := newTestServers(t, nil)
	ports := freePorts(t, 2)
	sync1(t, s, checks{name("a"): check(ports[0], 1, 1), name("b"): check(ports[1], 1, 1)}, loopback4)
	at := func(i int) net.Addr { return &net.TCPAddr{IP: loopback4.AsSlice(), Port: int(ports[i])} }

	for _, c := range connect(t, 50, "127.0.0.2", at(0), "GET / HTTP/1.1\r\nHost: node\r\n\r\n") {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		in := bufio.NewReader(c)
		r, err := http.ReadResponse(in, nil)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%v: %v", r, err)
		}
		r.Body.Close()
		if _, err := in.ReadByte(); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection stays open after the answer")
		}
	}

	connect(t, 200, "127.0.0.2", at(0), "")
	connect(t, 200, "127.0.0.2", at(1), "")
	expect(t, "among 400 connections of strangers", loopback4, ports[0], 200)
	expect(t, "among 400 connections of strangers", loopback4, ports[1], 200)
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	if n := len(s.limiter.open); n == 0 || n > maxConnections {
		t.Errorf("%d connections are open, want at most %d", n, maxConnections)
	}
}
