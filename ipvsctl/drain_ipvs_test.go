//go:build ipvs

package ipvsctl

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// endDrains ticks as if the graceful period were over.
func (d *director) endDrains(t testing.TB) {
	t.Helper()
	_, err := d.engine.Tick(start().Add(period))
	must(t, err)
	if n := draining(d.engine); n != 0 {
		t.Fatalf("%d real servers still drain", n)
	}
}

// toPod connects until it reaches a certain pod.
func (d *director) toPod(t testing.TB, v *VirtualServer, want int) *lab.Flow {
	t.Helper()
	for range 20 {
		if c, got := d.held(t, client(familyOf(v), 0), v); got == want {
			return c
		}
	}
	t.Fatalf("20 connections did not reach pod %d", want)
	return nil
}

func expectAnswer(t *testing.T, c *lab.Flow, want int) {
	t.Helper()
	if got, err := again(c, patience); err != nil || got != want {
		t.Errorf("the connection to pod %d: got %d, %v", want, got, err)
	}
}

// weights prints the real servers that the kernel has for a virtual server.
func (d *director) weights(t testing.TB, v *VirtualServer) string {
	t.Helper()
	for line := range strings.Lines(picture(t, d.engine.kernel)) {
		if rest, found := strings.CutPrefix(line, v.String()+" "+v.Scheduler+" "); found {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// testConnectionsSurviveDrain checks that a connection to a pod that drains works until the graceful period is over,
// across a restart of the process.
func (d *director) testConnectionsSurviveDrain(t *testing.T) {
	for _, p := range []Protocol{TCP, SCTP} {
		for _, family := range lab.Families() {
			t.Run(p.String()+"/"+family.String(), func(t *testing.T) {
				v := d.frontend(family, p, "rr", 1, 1)
				all := v.RealServers
				d.apply(t, v)
				c := d.toPod(t, &v, 0)

				v.RealServers = all[1:]
				d.apply(t, v)
				expectAnswer(t, c, 0)
				if got := d.spread(t, &v, 6); got[0] != 0 {
					t.Errorf("new connections: %v", got)
				}
				_, err := d.engine.Tick(start().Add(period - time.Second))
				must(t, err)
				expectAnswer(t, c, 0)

				d.open(t)
				d.apply(t, v)
				_, err = d.engine.Tick(start().Add(period - time.Second))
				must(t, err)
				expectAnswer(t, c, 0)
				if got, want := d.weights(t, &v), all[0].Addr.String()+"=0 "+all[1].Addr.String()+"=1"; got != want {
					t.Errorf("real servers after a restart: %s, want %s", got, want)
				}

				d.endDrains(t)
				if _, err := again(c, impatience); err == nil {
					t.Error("the connection outlived the graceful period")
				}
				if got, want := d.weights(t, &v), all[1].Addr.String()+"=1"; got != want {
					t.Errorf("real servers in the end: %s, want %s", got, want)
				}
				d.engine.Delete(v.String())
				pass(t, d.engine, start())
				d.endDrains(t)
			})
		}
	}
}

// testDrainEndsWithTheLastConnection checks that a real server goes when the kernel has forgotten its last connection,
// long before the graceful period is over.
func (d *director) testDrainEndsWithTheLastConnection(t *testing.T) {
	v := d.frontend(lab.IPv4, TCP, "rr", 1, 1)
	all := v.RealServers
	d.apply(t, v)
	// Only one connection: the kernel would keep connections that close normally for two minutes.
	c, got := d.held(t, client(lab.IPv4, 0), &v)
	v.RealServers = all[1-got : 2-got]
	d.apply(t, v)
	now := start()
	tick := func() int {
		now = now.Add(lastCheck)
		if !now.Before(start().Add(period)) {
			t.Fatal("the connection does not go away")
		}
		_, err := d.engine.Tick(now)
		must(t, err)
		return draining(d.engine)
	}
	for range 3 {
		if tick() != 1 {
			t.Fatal("the real server went although it has a connection")
		}
	}
	c.Close() // with a reset, which the kernel remembers for ten seconds
	for tick() > 0 {
		time.Sleep(time.Second)
	}
	if got, want := d.weights(t, &v), v.RealServers[0].Addr.String()+"=1"; got != want {
		t.Errorf("real servers: %s, want %s", got, want)
	}
}

// testTakenOutOfDrain checks that a pod that is wanted again gets new connections and keeps the old ones.
func (d *director) testTakenOutOfDrain(t *testing.T) {
	v := d.frontend(lab.IPv4, TCP, "rr", 1, 1)
	all := v.RealServers
	d.apply(t, v)
	c := d.toPod(t, &v, 0)
	v.RealServers = all[1:]
	d.apply(t, v)
	v.RealServers = all
	d.apply(t, v)
	expectAnswer(t, c, 0)
	if got := d.spread(t, &v, 10); got != [podCount]int{5, 5} {
		t.Errorf("pods answered %v times", got)
	}
	d.endDrains(t)
	expectAnswer(t, c, 0)
}

// testUDPIsNotDrained checks that a flow moves to another pod with its next packets.
func (d *director) testUDPIsNotDrained(t *testing.T) {
	v := d.frontend(lab.IPv4, UDP, "rr", 1, 1)
	all := v.RealServers
	d.apply(t, v)
	c := d.toPod(t, &v, 0)
	v.RealServers = all[1:]
	d.apply(t, v)
	if got, want := d.weights(t, &v), all[1].Addr.String()+"=1"; got != want {
		t.Errorf("real servers: %s, want %s", got, want)
	}
	for range 10 { // the kernel may drop the first packet to a real server that is gone
		if got, err := again(c, impatience); err == nil {
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
func (d *director) testVirtualServerDrains(t *testing.T) {
	v := d.frontend(lab.IPv4, TCP, "rr", 1, 1)
	d.apply(t, v)
	c := d.toPod(t, &v, 1)
	d.engine.Delete(v.String())
	pass(t, d.engine, start())
	expectAnswer(t, c, 1)
	q := question(client(lab.IPv4, 0), &v)
	q.Patience = impatience
	if r := d.world.At(t, lab.Outside).Ask(q); r.Outcome == lab.Answered {
		t.Errorf("a new connection was accepted: %s", r)
	}
	_, err := d.engine.Tick(start().Add(period - time.Second))
	must(t, err)
	expectAnswer(t, c, 1)
	d.endDrains(t)
	expect(t, "left in the kernel", picture(t, d.engine.kernel), "")
}
