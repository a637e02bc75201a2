package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
)

// The scenes of the demo.
const (
	sceneBalance       = "balance"
	sceneDeadNode      = "dead-node"
	sceneRollingUpdate = "rolling-update"
)

// The connections after the pod has vanished: one every deadPause. There are more on a machine that has so much other work
// that the last ones are still late.
const (
	deadConnections     = 200
	mostDeadConnections = 800
	deadPause           = 25 * time.Millisecond
	// perBar is how many connections one bar stands for.
	perBar = 20
)

// trial is one connection after the pod has vanished. It is late if the client had to send a packet again.
type trial struct {
	began, took time.Duration
	late        bool
	err         error
}

// lateIn is how many connections are late.
func lateIn(trials []trial) (n int) {
	for i := range trials {
		if trials[i].late {
			n++
		}
	}
	return n
}

// vanish lets a pod disappear without a word, as with a node that loses its power, and connects all the time.
func (st *story) vanish(ctx context.Context) error {
	gone := st.backends[1]
	st.heading("4. " + gone.name + " vanishes without a word")
	if err := gone.disappear(); err != nil {
		return err
	}
	target := clusterIP(&st.network.families[0])
	trials := st.network.shop.connectOften(ctx, target)
	st.say("Its EndpointSlice still says that it is ready. %d connections from %s to %s,\none every %s; each line has those that began "+
		"within %s, and the bar those that were late:\n", len(trials), st.network.shop.name, target, duration(deadPause), duration(perBar*deadPause))
	return st.judgeTrials(trials)
}

// untilAsked waits until Verdict has connected to each pod, before anybody else does. It ejects no others.
func (st *story) untilAsked(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, answerWithin)
	defer stop()
	for _, b := range st.backends {
		for _, a := range b.addresses {
			if err := b.untilVisited(ctx, a); err != nil {
				return fmt.Errorf("wait until verdict run has asked %s at %s: %w", b.name, a, err)
			}
		}
	}
	return nil
}

// disappear takes the addresses of a pod away. Packets to them get no answer, and the link of the node stays up.
func (h *host) disappear() error {
	return h.run(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return fmt.Errorf("find link eth0 of %s: %w", h.name, err)
		}
		for _, a := range h.addresses {
			if err := netlink.AddrDel(l, &netlink.Addr{IPNet: ipNet(single(a))}); err != nil {
				return fmt.Errorf("take address %s away from %s: %w", a, h.name, err)
			}
		}
		return nil
	})
}

// connectOften makes connections, and begins each at its time, even while others wait.
func (h *host) connectOften(ctx context.Context, to netip.AddrPort) (trials []trial) {
	began := time.Now()
	for n := deadConnections; len(trials) < mostDeadConnections; n = perBar {
		some := h.connectAt(ctx, to, began, n)
		trials = append(trials, some...)
		if lateIn(some[len(some)-perBar:]) == 0 {
			break
		}
	}
	return trials
}

// connectAt makes some of these connections.
func (h *host) connectAt(ctx context.Context, to netip.AddrPort, began time.Time, n int) []trial {
	trials, first := make([]trial, n), time.Now()
	var wait sync.WaitGroup
	for i := range trials {
		time.Sleep(time.Until(first.Add(time.Duration(i) * deadPause)))
		wait.Go(func() {
			t := &trials[i]
			t.began = time.Since(began)
			t.err = h.run(func() error {
				_, again, err := askAndCount(ctx, to)
				t.late = again > 0
				return err
			})
			t.took = time.Since(began) - t.began
		})
	}
	wait.Wait()
	return trials
}

// summary is what the connections have in common.
type summary struct {
	late     int
	slowest  time.Duration
	lastLate time.Duration // when the last late one began
}

// summarize returns an error if a connection was lost.
func summarize(trials []trial, after string) (s summary, err error) {
	for i := range trials {
		t := &trials[i]
		if t.err != nil {
			return s, fmt.Errorf("connection %d of %d, which began %s after %s, is lost: %w", i+1, len(trials), duration(t.began), after, t.err)
		}
		if t.late {
			s.late++
			s.lastLate = t.began
		}
		s.slowest = max(s.slowest, t.took)
	}
	return s, nil
}

// judgeTrials draws the connections. It returns an error if one was lost.
func (st *story) judgeTrials(trials []trial) error {
	s, err := summarize(trials, "the pod had vanished")
	if err != nil {
		return err
	}
	st.trialBars(trials)
	st.say("\nNone was lost. %d were late, by %s at most; the last of them began after %s.", s.late, duration(s.slowest), duration(s.lastLate))
	st.say("Verdict noticed the repeated packets, asked the pod twice, and sent it nothing any more. Clients that were\n"+
		"waiting for it reached another pod with their next packet. The Service asks for that by the annotation\n"+
		"%q. By default, Verdict only observes.", ejectAnnotation)
	return nil
}

func (st *story) trialBars(trials []trial) {
	const room = 40
	for group := range slices.Chunk(trials, perBar) {
		lateOnes, slowest := lateIn(group), time.Duration(0)
		for i := range group {
			slowest = max(slowest, group[i].took)
		}
		st.say("%4.1f s  %s  %2d of %d late, slowest %s", group[0].began.Seconds(), st.bar(lateOnes, perBar, room), lateOnes,
			len(group), duration(slowest))
	}
}
