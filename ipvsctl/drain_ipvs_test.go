//go:build ipvs

package ipvsctl

import (
	"net"
	"strings"
	"testing"
	"time"
)

// endDrains ticks as if the graceful period were over.
func (l *lab) endDrains(t testing.TB) {
	t.Helper()
	_, err := l.engine.Tick(start().Add(period))
	must(t, err)
	if n := draining(l.engine); n != 0 {
		t.Fatalf("%d real servers still drain", n)
	}
}

// toPod connects until it reaches a certain pod.
func (l *lab) toPod(t testing.TB, v *VirtualServer, want int) *link {
	t.Helper()
	for range 20 {
		if c, got := l.held(t, client(familyOf(v), 0), v); got == want {
			return c
		}
	}
	t.Fatalf("20 connections did not reach pod %d", want)
	return nil
}

func expectAnswer(t *testing.T, c *link, want int) {
	t.Helper()
	if got, err := c.ask(); err != nil || got != want {
		t.Errorf("the connection to pod %d: got %d, %v", want, got, err)
	}
}

// weights prints the real servers that the kernel has for a virtual server.
func (l *lab) weights(t testing.TB, v *VirtualServer) string {
	t.Helper()
	for line := range strings.Lines(picture(t, l.engine.kernel)) {
		if rest, found := strings.CutPrefix(line, v.String()+" "+v.Scheduler+" "); found {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// testConnectionsSurviveDrain checks that a connection to a pod that drains works until the graceful period is over,
// across a restart of the process.
func (l *lab) testConnectionsSurviveDrain(t *testing.T) {
	for _, p := range []Protocol{TCP, SCTP} {
		for _, family := range []string{"v4", "v6"} {
			t.Run(p.String()+"/"+family, func(t *testing.T) {
				v := l.frontend(family, p, "rr", 1, 1)
				all := v.RealServers
				l.apply(t, v)
				c := l.toPod(t, &v, 0)

				v.RealServers = all[1:]
				l.apply(t, v)
				expectAnswer(t, c, 0)
				if got := l.spread(t, &v, 6); got[0] != 0 {
					t.Errorf("new connections: %v", got)
				}
				_, err := l.engine.Tick(start().Add(period - time.Second))
				must(t, err)
				expectAnswer(t, c, 0)

				l.open(t)
				l.apply(t, v)
				_, err = l.engine.Tick(start().Add(period - time.Second))
				must(t, err)
				expectAnswer(t, c, 0)
				if got, want := l.weights(t, &v), all[0].Addr.String()+"=0 "+all[1].Addr.String()+"=1"; got != want {
					t.Errorf("real servers after a restart: %s, want %s", got, want)
				}

				l.endDrains(t)
				if _, err := c.ask(); err == nil {
					t.Error("the connection outlived the graceful period")
				}
				if got, want := l.weights(t, &v), all[1].Addr.String()+"=1"; got != want {
					t.Errorf("real servers in the end: %s, want %s", got, want)
				}
				l.engine.Delete(v.String())
				pass(t, l.engine, start())
				l.endDrains(t)
			})
		}
	}
}

// testDrainEndsWithTheLastConnection checks that a real server goes when the kernel has forgotten its last connection,
// long before the graceful period is over.
func (l *lab) testDrainEndsWithTheLastConnection(t *testing.T) {
	v := l.frontend("v4", TCP, "rr", 1, 1)
	all := v.RealServers
	l.apply(t, v)
	// Only one connection: the kernel would keep connections that close normally for two minutes.
	c, got := l.held(t, client("v4", 0), &v)
	v.RealServers = all[1-got : 2-got]
	l.apply(t, v)
	now := start()
	tick := func() int {
		now = now.Add(lastCheck)
		if !now.Before(start().Add(period)) {
			t.Fatal("the connection does not go away")
		}
		_, err := l.engine.Tick(now)
		must(t, err)
		return draining(l.engine)
	}
	for range 3 {
		if tick() != 1 {
			t.Fatal("the real server went although it has a connection")
		}
	}
	must(t, c.conn.(*net.TCPConn).SetLinger(0)) // close with a reset, which the kernel remembers for ten seconds
	c.conn.Close()
	for tick() > 0 {
		time.Sleep(time.Second)
	}
	if got, want := l.weights(t, &v), v.RealServers[0].Addr.String()+"=1"; got != want {
		t.Errorf("real servers: %s, want %s", got, want)
	}
}

// testTakenOutOfDrain checks that a pod that is wanted again gets new connections and keeps the old ones.
func (l *lab) testTakenOutOfDrain(t *testing.T) {
	v := l.frontend("v4", TCP, "rr", 1, 1)
	all := v.RealServers
	l.apply(t, v)
	c := l.toPod(t, &v, 0)
	v.RealServers = all[1:]
	l.apply(t, v)
	v.RealServers = all
	l.apply(t, v)
	expectAnswer(t, c, 0)
	if got := l.spread(t, &v, 10); got != [podCount]int{5, 5} {
		t.Errorf("pods answered %v times", got)
	}
	l.endDrains(t)
	expectAnswer(t, c, 0)
}

// testUDPIsNotDrained checks that a flow moves to another pod with its next packets.
func (l *lab) testUDPIsNotDrained(t *testing.T) {
	v := l.frontend("v4", UDP, "rr", 1, 1)
	all := v.RealServers
	l.apply(t, v)
	c := l.toPod(t, &v, 0)
	v.RealServers = all[1:]
	l.apply(t, v)
	if got, want := l.weights(t, &v), all[1].Addr.String()+"=1"; got != want {
		t.Errorf("real servers: %s, want %s", got, want)
	}
	for range 3 { // the kernel may drop the first packet to a real server that is gone
		if got, err := c.ask(); err == nil {
			if got != 1 {
				t.Errorf("pod %d answers", got)
			}
			return
		}
	}
	t.Error("no answer any more")
}

// testVirtualServerDrains checks that connections outlive their virtual server until the graceful period is over. A
// virtual server goes, for example, when its Service moves to nft.
func (l *lab) testVirtualServerDrains(t *testing.T) {
	v := l.frontend("v4", TCP, "rr", 1, 1)
	l.apply(t, v)
	c := l.toPod(t, &v, 1)
	l.engine.Delete(v.String())
	pass(t, l.engine, start())
	expectAnswer(t, c, 1)
	if _, _, err := call(l.clients, client("v4", 0), v.Key); err == nil {
		t.Error("a new connection was accepted")
	}
	_, err := l.engine.Tick(start().Add(period - time.Second))
	must(t, err)
	expectAnswer(t, c, 1)
	l.endDrains(t)
	expect(t, "left in the kernel", picture(t, l.engine.kernel), "")
}
