package rate

import (
	"context"
	"net"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"
	"time"
)

const patience = 300 * time.Millisecond

// listen returns a listener of the loopback link, and its address.
func listen(t *testing.T) (*net.TCPListener, netip.AddrPort) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // some tests close it
	return l, l.Addr().(*net.TCPAddr).AddrPort()
}

// each calls a function for each connection to a listener.
func each(l *net.TCPListener, do func(*net.TCPConn)) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			return
		}
		do(conn)
	}
}

// TestOutcomes: each way in which a connection can end has a name.
func TestOutcomes(t *testing.T) {
	for _, test := range []struct {
		name  string
		serve func(*net.TCPListener)
		want  Outcome
		lost  bool
	}{
		{"a good server", func(l *net.TCPListener) { go (&Server{Name: "good"}).Serve(l) }, Answered, false},
		{"nobody listens", func(l *net.TCPListener) { _ = l.Close() }, Refused, true},
		{"reset", func(l *net.TCPListener) {
			go each(l, func(conn *net.TCPConn) { _ = conn.SetLinger(0); _ = conn.Close() })
		}, Reset, false},
		{"no answer before the end", func(l *net.TCPListener) {
			go each(l, func(conn *net.TCPConn) { _ = conn.CloseWrite() })
		}, Reset, false},
		{"half an answer", func(l *net.TCPListener) {
			go each(l, func(conn *net.TCPConn) { _, _ = conn.Write([]byte("go")); _ = conn.CloseWrite() })
		}, Reset, false},
		{"silence", func(*net.TCPListener) {}, Silent, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, at := listen(t)
			test.serve(l)
			a := (&Client{Patience: patience}).connect(at)
			if a.Outcome != test.want || a.Lost() != test.lost {
				t.Errorf("%+v; want %s, lost: %v", a, test.want, test.lost)
			}
			if a.SourcePort < lowPort || a.To != at || a.Took <= 0 {
				t.Errorf("%+v lacks its port, target or time", a)
			}
		})
	}
}

// TestServerFinishes: a server that has closed its listener answers what it has accepted.
func TestServerFinishes(t *testing.T) {
	l, at := listen(t)
	s := &Server{Name: "polite"}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	conn, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if a := (&Client{Patience: patience}).connect(at); a.Outcome != Answered { // the first one was accepted before it
		t.Fatalf("%+v", a)
	}
	_ = l.Close()
	<-served
	if name, err := ask(conn, time.Now().Add(patience)); name != "polite" || err != nil {
		t.Errorf("an accepted connection was answered with %q, %v", name, err)
	}
	s.Wait()
}

// TestHandshakeErrors: errors that loopback cannot produce.
func TestHandshakeErrors(t *testing.T) {
	c := Client{Patience: -time.Second}
	if a := c.connect(netip.MustParseAddrPort("127.0.0.1:1")); a.Outcome != Timeout || !a.Lost() {
		t.Errorf("a connection that is too late: %+v", a)
	}
	c.Patience = patience
	if a := c.connect(netip.MustParseAddrPort("[ff02::1]:1")); a.Outcome != Unreachable && a.Outcome != Failed || !a.Lost() {
		t.Errorf("a connection to a multicast address: %+v", a)
	}
}

// TestRate: the rate does not depend on how long connections take, and the records arrive over HTTP.
func TestRate(t *testing.T) {
	_, silent := listen(t)
	l, good := listen(t)
	go (&Server{Name: "good"}).Serve(l)
	c := &Client{Targets: []netip.AddrPort{silent, good}, PerSecond: 100, Patience: patience}
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	began := time.Now()
	c.Run(ctx)
	web := httptest.NewServer(c)
	defer web.Close()
	list, err := Fetch(web.Listener.Addr().String(), began, (&net.Dialer{}).DialContext)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 50 || len(list) > 101 {
		t.Errorf("%d connections in a second, want 100", len(list))
	}
	bad := func(a Attempt) bool { return (a.To == good) != (a.Outcome == Answered && a.Server == "good") }
	if i := slices.IndexFunc(list, bad); i >= 0 {
		t.Errorf("%+v", list[i])
	}
	if list := c.Since(time.Now()); len(list) > 0 {
		t.Errorf("connections of the future: %v", list)
	}
}
