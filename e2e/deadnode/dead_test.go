//go:build e2e || ipvs

package deadnode

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
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

func judge(list []rate.Attempt, death time.Time) (o outcome) {
	for _, a := range list {
		if a.Outcome != rate.Answered {
			o.failed++
		}
		if a.Took > 1500*time.Millisecond {
			o.late++
			o.lastLate = a.Began.Sub(death)
		}
		o.worst = max(o.worst, a.Took)
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
// those of the first seconds are late. Without ejection, the same load fails: so the test can fail.
func TestNodeVanishes(t *testing.T) {
	for _, e := range engines {
		for _, f := range lab.Families() {
			for _, mode := range e.modes(f) {
				t.Run(e.name+"/"+f.String()+"/"+mode, func(t *testing.T) { nodeVanishes(t, &e, f, mode) })
			}
		}
	}
}

func nodeVanishes(t *testing.T, e *engine, f lab.Family, mode string) {
	undisturbed(t, func() (*bed, error) { return vanishing(t, e, f, mode) })
}

func vanishing(t *testing.T, e *engine, f lab.Family, mode string) (*bed, error) {
	b := newBed(t, `verdict-proxy.github.io/outlier-detection: "`+mode+`"`+e.annotation, tenEndpoints(), e.flags...)
	if mode == "eject" {
		b.untilAsked(tenEndpoints())
	}
	list, death := b.loadAround(f, b.vanish)
	o := judge(list, death)
	o.log(t, list, death)
	switch {
	case mode == "observe" && o.failed < *perSecond/2:
		return b, errors.New("only few connections fail without ejection: the test does not show anything")
	case mode == "eject" && (o.failed > 0 || o.lastLate > e.lateness || o.worst > defaultPatience-500*time.Millisecond):
		return b, errors.New("connections fail, or are late after the first seconds")
	}
	return b, nil
}

// loadAround makes connections before and after a death.
func (b *bed) loadAround(f lab.Family, die func()) (list []rate.Attempt, death time.Time) {
	l := b.load(lab.Outside, vip(f), *perSecond)
	time.Sleep(2 * time.Second)
	die()
	death = time.Now()
	time.Sleep(6 * time.Second)
	return l.end(), death
}

func (o *outcome) log(t *testing.T, list []rate.Attempt, death time.Time) {
	t.Helper()
	t.Logf("%d connections: %d failed, %d late, the last late one began %s after the death, the slowest took %s",
		len(list), o.failed, o.late, o.lastLate.Round(time.Millisecond), o.worst.Round(time.Millisecond))
	logErrors(t, list, death)
}

// TestLinkDown takes the link of this node to the other one down. The kernel knows that at once, and answers clients with
// "no route to host", unless their packets go elsewhere first.
func TestLinkDown(t *testing.T) {
	for _, e := range engines {
		for _, f := range lab.Families() {
			t.Run(e.name+"/"+f.String(), func(t *testing.T) {
				undisturbed(t, func() (*bed, error) { return linkDown(t, &e, f) })
			})
		}
	}
}

func linkDown(t *testing.T, e *engine, f lab.Family) (*bed, error) {
	b := newBed(t, eject+e.annotation, tenEndpoints(), e.flags...)
	b.untilAsked(tenEndpoints())
	list, death := b.loadAround(f, func() { b.At(t, lab.Remote).Must(t, "", "ip", "link", "set", "eth0", "down") })
	o := judge(list, death)
	o.log(t, list, death)
	// An established connection to a dead node is lost: those that began before count only if they never had an answer.
	for _, a := range list {
		if a.Outcome != rate.Answered && (!a.Began.Before(death) || a.Outcome == rate.Unreachable) {
			return b, errors.New("connections fail")
		}
	}
	if o.late < *perSecond/10 {
		return b, errors.New("only few connections are late: the test does not show anything")
	}
	return b, nil
}

// serverOnce answers at port 9 of pod c until it is closed.
func (b *bed) serverOnce() (closeIt func()) {
	var listener net.Listener
	b.At(b.t, "c").MustDo(b.t, func() (err error) {
		listener, err = net.Listen("tcp", ":9")
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

// TestRefusing ends the process of an endpoint while its host lives on. No connection fails: clients that are refused are
// held back for a second, and by then no connection goes there.
func TestRefusing(t *testing.T) {
	for _, e := range engines {
		for _, f := range lab.Families() {
			for _, annotation := range e.refusals() {
				t.Run(e.name+"/"+f.String()+"/"+annotation, func(t *testing.T) {
					undisturbed(t, func() (*bed, error) { return refusing(t, &e, f, annotation) })
				})
			}
		}
	}
}

func refusing(t *testing.T, e *engine, f lab.Family, annotation string) (*bed, error) {
	var closeIt func()
	endpoints := []place{{"a", 8080, lab.NodeName}, {"b", 8080, "node-3"}, {"c", 9, lab.RemoteNodeName}}
	b := newBedAfter(t, func(b *bed) { closeIt = b.serverOnce() },
		`verdict-proxy.github.io/outlier-detection: "`+annotation+`"`+e.annotation, endpoints, e.flags...)
	l := b.load(lab.Outside, vip(f), *perSecond/2)
	time.Sleep(2 * time.Second)
	closeIt()
	death := time.Now()
	time.Sleep(4 * time.Second)
	list := l.end()
	early, later, late := 0, 0, 0
	for _, a := range list {
		switch {
		case a.Outcome == rate.Answered && a.Took > 900*time.Millisecond:
			late++
		case a.Outcome == rate.Answered || a.Began.Before(death) && a.Outcome == rate.Reset:
			// It was established, and waited in the listener's queue when the process ended: no proxy can save it. One
			// whose first packet comes after the death gets "connection refused", and counts whenever it began.
		case a.Began.Sub(death) < soon:
			early++
		default:
			later++
		}
	}
	t.Logf("%d connections were refused in the first %s, %d later; %d were late", early, soon, later, late)
	logErrors(t, list, death)
	switch {
	case annotation == "eject,refusals" && e.holdsBack && (early > 0 || later > 0 || late == 0):
		return b, errors.New("with \"eject,refusals\", no connection fails, and those of the first second are late")
	case annotation == "eject,refusals" && !e.holdsBack && (early == 0 || later > 0):
		return b, errors.New("with \"eject,refusals\", connections fail in the first second, and no later ones do")
	case annotation != "eject,refusals" && (early == 0 || later == 0):
		return b, errors.New("without ejection, connections go on to fail")
	}
	if annotation == "observe,refusals" {
		b.waitFor(`msg="an endpoint does not answer" endpoint=` + endpoints[2].addr(f).String())
	}
	return b, nil
}

// logErrors shows the errors of connections, each with the first and the last connection that had it.
func logErrors(t *testing.T, list []rate.Attempt, death time.Time) {
	t.Helper()
	by := map[string][]rate.Attempt{}
	for _, a := range list {
		if a.Outcome != rate.Answered {
			by[string(a.Outcome)] = append(by[string(a.Outcome)], a)
		}
	}
	for outcome, all := range by {
		first, last := all[0], all[len(all)-1]
		t.Logf("%d connections: %s (%s); from %s after the death (took %s) to %s (took %s)",
			len(all), outcome, first.Error, first.Began.Sub(death), first.Took, last.Began.Sub(death), last.Took)
	}
}
