//go:build e2e || ipvs

package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

const (
	connections = 1000
	newOnes     = 500 // a second
	patience    = 10 * time.Second
)

// deaths are the ways in which a balancer dies.
func deaths() map[string]func(b *bed, n *balancer) {
	return map[string]func(b *bed, n *balancer){
		"link":    func(b *bed, n *balancer) { b.ip(n.Namespace, "link set dev up down", "link set dev below down") },
		"process": func(b *bed, n *balancer) { b.kill(n) },
		"machine": func(b *bed, n *balancer) {
			b.kill(n)
			b.ip(n.Namespace, "link del dev up", "link del dev below") // router and gateway lose theirs, too
		},
	}
}

func (b *bed) kill(n *balancer) {
	if err := n.process.Kill(); err != nil {
		b.t.Error(err)
	}
}

// result is what came of a death.
type result struct {
	asking, silent int // lost
	rate           float64
	began, late    int // after the routes changed
	longest        time.Duration
}

// tooLate reports whether new connections wait. A few may: a client that aborts a connection while the balancer dies, and
// uses its port again, meets an endpoint that still has the old one.
func (r result) tooLate() bool { return r.late*100 > r.began }

func (r result) String() string {
	return fmt.Sprintf("%d of %d open connections lost (%d asking, %d silent); %.0f new ones a second, of %d after the change %d late, the longest %d ms",
		r.asking+r.silent, connections, r.asking, r.silent, r.rate, r.began, r.late, r.longest.Milliseconds())
}

// die kills the first balancer under load. The routes change at once, as a routing daemon would have it after it noticed.
func (b *bed) die(f lab.Family, death func(*bed, *balancer), meanwhile func() (end func())) (r result) {
	b.t.Helper()
	open, stream := b.hold(f, connections), b.connect(f, newOnes)
	if asking, silent := open.use(patience); asking+silent > 0 {
		b.t.Fatalf("before the death: %d and %d connections are lost", asking, silent)
	}
	defer meanwhile()()
	n := b.balancers[0]
	death(b, n)
	n.down = true
	b.route(b.alive()...)
	changed, before := time.Now(), stream.made()
	r.asking, r.silent = open.use(patience)
	b.until("new connections after the death", func() error {
		if n := stream.made() - before; n < 2*newOnes {
			return fmt.Errorf("only %d", n)
		}
		return nil
	})
	r.rate, r.began, r.late, r.longest = stream.end(changed)
	b.t.Logf("%s, %s", f, r)
	return r
}

// TestBalancerDies: 1,000 connections are open, and clients make new ones. A balancer dies, and no open connection is lost.
func TestBalancerDies(t *testing.T) {
	for name, death := range deaths() {
		for _, f := range lab.Families() {
			t.Run(fmt.Sprint(name, "/", f), func(t *testing.T) {
				b := newBed(t, "mh", "--fleet")
				r := b.die(f, death, quiet)
				if r.asking+r.silent > 0 || r.tooLate() {
					t.Error(r)
				}
			})
		}
	}
}

func quiet() (end func()) { return func() {} }

// step is from one endpoint that is left out to the next one.
const step = 7

// leaveOut takes an endpoint out on a balancer.
func (b *bed) leaveOut(n *balancer, endpoint int) error {
	if b.scheduler == "" {
		return n.unlist(endpoint)
	}
	return n.manifests(b.scheduler, endpoint)
}

// change takes another endpoint out every second, and puts the one before in again. It returns after some changes, and goes
// on until its end.
func (b *bed) change() (end func()) {
	stop, done := make(chan struct{}), make(chan error)
	some := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for i := 0; ; i++ {
			for _, n := range b.balancers {
				if err := b.leaveOut(n, i*step%endpoints); err != nil {
					done <- err
					return
				}
			}
			if i == 3 {
				close(some)
			}
			select {
			case <-stop:
				done <- nil
				return
			case <-tick.C:
			}
		}
	}()
	<-some
	return func() {
		close(stop)
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}
}

// TestBalancerDiesAmongChanges: the same while endpoints change every second. A client that reaches another balancer loses
// its connection if its endpoint is just left out, or if the change moves its slot of the table.
func TestBalancerDiesAmongChanges(t *testing.T) {
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) {
			b := newBed(t, "mh", "--fleet")
			r := b.die(f, deaths()["machine"], b.change)
			if lost := r.asking + r.silent; lost*1000 > connections*25 || r.tooLate() {
				t.Error(r)
			}
		})
	}
}

// TestBalancerDiesAlone: what --fleet and the hash are for.
func TestBalancerDiesAlone(t *testing.T) {
	for _, tt := range []struct {
		name, scheduler string
		flags           []string
		asking, silent  bool // are lost
	}{
		{"mh without fleet", "mh", nil, false, true},
		{"random", "random", nil, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newBed(t, tt.scheduler, tt.flags...).die(lab.IPv4, deaths()["machine"], quiet)
			if (r.asking > 0) != tt.asking || (r.silent > 0) != tt.silent {
				t.Error(r)
			}
		})
	}
}
