//go:build e2e

package deadnode

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// outcome of a load around the moment of a death.
type outcome struct {
	failed int // of all connections
	late   int // took more than 1.5 s
	worst  time.Duration
	// lastLate is when the last late connection began, after the death.
	lastLate time.Duration
}

func judge(list []attempt, death time.Duration) (o outcome) {
	for _, a := range list {
		if a.err != nil {
			o.failed++
		}
		if a.took > 1500*time.Millisecond {
			o.late++
			o.lastLate = a.began - death
		}
		o.worst = max(o.worst, a.took)
	}
	return o
}

// vanish cuts the remote node off, as behind a switch: nothing comes back from it, not even ARP, and the link of this
// node stays up.
func (b *bed) vanish() {
	b.At(b.t, lab.Remote).Must(b.t, `table netdev gone {
	chain in { type filter hook ingress device "eth0" priority 0; policy drop; }
}
`, "nft", "-f", "-")
}

// TestNodeVanishes cuts a node off, with 3 of the 10 endpoints of a Service. No connection fails, and only
// those of the first two seconds are late. Without ejection, the same load fails: so the test can fail.
func TestNodeVanishes(t *testing.T) {
	for _, f := range lab.Families() {
		for _, mode := range []string{"eject", "observe"} {
			t.Run(f.String()+"/"+mode, func(t *testing.T) {
				b := newBed(t, `verdict-proxy.github.io/outlier-detection: "`+mode+`"`, tenEndpoints())
				l := b.load(lab.Outside, vip(f), *rate)
				time.Sleep(2 * time.Second)
				b.vanish()
				death := time.Since(l.began)
				time.Sleep(6 * time.Second)
				list := l.end()
				o := judge(list, death)
				t.Logf("%d connections: %d failed, %d late, the last late one began %s after the death, the slowest took %s",
					len(list), o.failed, o.late, o.lastLate.Round(time.Millisecond), o.worst.Round(time.Millisecond))
				logErrors(t, list, death)
				switch {
				case mode == "observe" && o.failed < *rate/2:
					t.Error("only few connections fail without ejection: the test does not show anything")
				case mode == "eject" && (o.failed > 0 || o.lastLate > lateness() || o.worst > 4500*time.Millisecond):
					t.Error("connections fail, or are late after the first two seconds")
				}
			})
		}
	}
}

// TestLinkDown takes the link of this node to the other one down. The kernel knows that at once, and answers clients with
// "no route to host", unless their packets go elsewhere first.
func TestLinkDown(t *testing.T) {
	b := newBed(t, eject, tenEndpoints())
	l := b.load(lab.Outside, vip(lab.IPv4), *rate)
	time.Sleep(2 * time.Second)
	b.At(t, lab.Remote).Must(t, "", "ip", "link", "set", "eth0", "down")
	death := time.Since(l.began)
	time.Sleep(6 * time.Second)
	list := l.end()
	o := judge(list, death)
	t.Logf("%d connections: %d failed, %d late, the last late one began %s after the death, the slowest took %s",
		len(list), o.failed, o.late, o.lastLate.Round(time.Millisecond), o.worst.Round(time.Millisecond))
	logErrors(t, list, death)
	// An established connection to a dead node is lost: those that began before count only if they never had an answer.
	for _, a := range list {
		if a.err != nil && (a.began >= death || strings.Contains(a.err.Error(), "no route")) {
			t.Fatal("connections fail")
		}
	}
	if o.late < *rate/10 {
		t.Error("only few connections are late: the test does not show anything")
	}
}

// serverOnce answers at port 9 of pod c until it is closed.
func (b *bed) serverOnce() (closeIt func()) {
	var listener net.Listener
	b.At(b.t, "c").MustDo(b.t, func() (err error) {
		listener, err = net.Listen("tcp4", ":9")
		return err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			_, _ = conn.Write([]byte("x")) // a client that misses it reports it
			_ = conn.Close()
		}
	}()
	return func() {
		_ = listener.Close()
		<-done
	}
}

// TestRefusing ends the process of an endpoint while its host lives on. After a second, no connection goes there.
func TestRefusing(t *testing.T) {
	for _, annotation := range []string{"eject,refusals", "eject"} {
		t.Run(annotation, func(t *testing.T) {
			var closeIt func()
			endpoints := []place{{"a", 8080, lab.NodeName}, {"b", 8080, "node-3"}, {"c", 9, lab.RemoteNodeName}}
			b := newBedAfter(t, func(b *bed) { closeIt = b.serverOnce() },
				`verdict-proxy.github.io/outlier-detection: "`+annotation+`"`, endpoints)
			l := b.load(lab.Outside, vip(lab.IPv4), 100)
			time.Sleep(2 * time.Second)
			closeIt()
			death := time.Since(l.began)
			time.Sleep(4 * time.Second)
			list := l.end()
			early, later := 0, 0
			for _, a := range list {
				switch {
				case a.err == nil:
				case a.began-death < time.Second:
					early++
				default:
					later++
				}
			}
			t.Logf("%d connections were refused in the first second, %d later", early, later)
			if noticed := annotation != "eject"; noticed != (later == 0) || early == 0 {
				t.Error("with \"refusals\", no connection fails after the first second; without, connections go on to fail")
			}
			logErrors(t, list, death)
		})
	}
}

// TestReturn: endpoints that answer again get connections again, and so does one about which its EndpointSlice says
// something new, at once.
func TestReturn(t *testing.T) {
	b := newBed(t, eject, tenEndpoints())
	l := b.load(lab.Outside, vip(lab.IPv4), 100)
	defer l.end()
	time.Sleep(time.Second)
	b.vanish()
	for end := time.Now().Add(10 * time.Second); b.served("10.0.2."); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the endpoints are not ejected")
		}
	}
	renamed := tenEndpoints()
	renamed[9].node = "node-4"
	b.slices(renamed)
	b.waitFor("the EndpointSlice of an endpoint that did not answer has changed; it gets connections again")
	if !b.served("10.0.2.1 . 8081") {
		t.Error("the endpoint with a new word gets no connections")
	}
	b.At(t, lab.Remote).Must(t, "", "nft", "delete", "table", "netdev", "gone")
	for end := time.Now().Add(15 * time.Second); !b.served("10.0.2.1 . 8080") || !b.served("10.0.2.2 . 8080"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the endpoints do not return")
		}
	}
}

// served reports whether the kernel has an endpoint whose text begins like this.
func (b *bed) served(text string) bool {
	return strings.Contains(b.Node.Must(b.t, "", "nft", "list", "map", "ip", "verdict", "endpoints"), " : "+text)
}

// lateness is how long after the death connections may begin that are late. IPVS drops a packet of each connection
// before it sends the next one elsewhere, and runs on an emulated processor here.
func lateness() time.Duration {
	if *backend == "ipvs" {
		return 4 * time.Second
	}
	return 2 * time.Second
}

// logErrors shows the errors of connections, each with the first and the last connection that had it.
func logErrors(t *testing.T, list []attempt, death time.Duration) {
	t.Helper()
	type seen struct {
		n           int
		first, last attempt
	}
	by := map[string]*seen{}
	for _, a := range list {
		if a.err == nil {
			continue
		}
		s := by[a.err.Error()]
		if s == nil {
			s = &seen{first: a}
			by[a.err.Error()] = s
		}
		s.n, s.last = s.n+1, a
	}
	for text, s := range by {
		t.Logf("%d connections: %s; from %s after the death (took %s) to %s (took %s)",
			s.n, text, s.first.began-death, s.first.took, s.last.began-death, s.last.took)
	}
}
