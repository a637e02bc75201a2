package rate

import (
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
		{"a good server", func(l *net.TCPListener) { go Serve(l, "good") }, Answered, false},
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
			a := (&Client{Patience: patience}).Connect(To(at))
			if a.Outcome != test.want || a.Lost() != test.lost {
				t.Errorf("%+v; want %s, lost: %v", a, test.want, test.lost)
			}
			if a.SourcePort < 10_000 || a.To != at || a.Took <= 0 {
				t.Errorf("%+v lacks its port, target or time", a)
			}
		})
	}
}

// TestServerFinishes: a server that has closed its listener answers what it has accepted.
func TestServerFinishes(t *testing.T) {
	l, at := listen(t)
	served := make(chan error)
	go func() { served <- Serve(l, "polite") }()
	conn, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if a := (&Client{Patience: patience}).Connect(To(at)); a.Outcome != Answered { // the first one was accepted before it
		t.Fatalf("%+v", a)
	}
	_ = l.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if name, err := ask(conn); name != "polite" || err != nil {
		t.Errorf("an accepted connection was answered with %q, %v", name, err)
	}
	<-served
}

// TestHandshakeErrors: errors that loopback cannot produce.
func TestHandshakeErrors(t *testing.T) {
	c := Client{Patience: -time.Second}
	if a := c.Connect(To(netip.MustParseAddrPort("127.0.0.1:1"))); a.Outcome != Timeout || !a.Lost() {
		t.Errorf("a connection that is too late: %+v", a)
	}
	c.Patience = patience
	if a := c.Connect(To(netip.MustParseAddrPort("[ff02::1]:1"))); a.Outcome != Unreachable && a.Outcome != Failed || !a.Lost() {
		t.Errorf("a connection to a multicast address: %+v", a)
	}
}

// TestRate: the rate does not depend on how long connections take, and the records arrive over HTTP.
func TestRate(t *testing.T) {
	_, silent := listen(t)
	l, good := listen(t)
	go Serve(l, "good")
	c := &Client{Targets: []*Target{To(silent), To(good)}, PerSecond: 100, Patience: 4 * time.Second} // one after the other, 50 take 100 s
	began := time.Now()
	stop := c.Start()
	for range time.Tick(time.Millisecond) {
		if c.Made() >= 50 {
			break
		}
	}
	made := stop()
	for i, a := range made { // this machine may stand still, so they can only be late
		if due := began.Add(time.Duration(i) * time.Second / 100); a.Began.Before(due) {
			t.Errorf("connection %d began %v too early", i, due.Sub(a.Began))
		}
	}
	web := httptest.NewServer(c)
	defer web.Close()
	list, err := Fetch(web.Listener.Addr().String(), began, (&net.Dialer{}).DialContext)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(made) {
		t.Errorf("%d connections arrived, %d were made", len(list), len(made))
	}
	bad := func(a Attempt) bool { return (a.To == good) != (a.Outcome == Answered && a.Server == "good") }
	if i := slices.IndexFunc(list, bad); i >= 0 {
		t.Errorf("%+v", list[i])
	}
	if list := c.Since(time.Now()); len(list) > 0 {
		t.Errorf("connections of the future: %v", list)
	}
}

// TestSequential: with UDP and a name, and no second connection to a target that does not answer.
func TestSequential(t *testing.T) {
	echo, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for buf := make([]byte, 10); ; {
			n, from, err := echo.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = echo.WriteTo(buf[:n], from) // a client that misses it reports it
		}
	}()
	_, silent := listen(t)
	_, port, _ := net.SplitHostPort(echo.LocalAddr().String())
	good, err := ParseTarget("udp4 localhost:" + port + " once")
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{Targets: []*Target{To(silent), good}, PerSecond: 100, Patience: 2 * patience, Sequential: true}
	stop := c.Start()
	for c.Made() < 5 {
		time.Sleep(time.Millisecond)
	}
	count := map[string]int{}
	for _, a := range stop() {
		count[a.Target+" "+string(a.Outcome)]++
	}
	if count["tcp "+silent.String()+" silent"] != 1 || count["udp4 localhost:"+port+" answered"] < 5 || len(count) != 2 {
		t.Errorf("%v", count)
	}
	if _, err := ParseTarget("udp4 localhost:80 twice"); err == nil {
		t.Error("a target with a word too many is accepted")
	}
}
