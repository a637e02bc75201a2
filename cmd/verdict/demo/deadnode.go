package demo

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
)

// The scenes of the demo.
const (
	sceneBalance  = "balance"
	sceneDeadNode = "dead-node"
)

// The connections after the pod has vanished: one every deadPause.
const (
	deadConnections = 200
	deadPause       = 25 * time.Millisecond
	// late is how long a connection may take before it counts as late. Without a repeated packet, it takes much less.
	late = 500 * time.Millisecond
	// firstLooks is how long Verdict takes to see that the pods answer the node. It ejects no others.
	firstLooks = time.Second
	// shown is the time that one bar stands for.
	shown = 500 * time.Millisecond
)

// trial is one connection after the pod has vanished.
type trial struct {
	began, took time.Duration
	err         error
}

// vanish lets a pod disappear without a word, as with a node that loses its power, and connects all the time.
func (st *story) vanish(ctx context.Context) error {
	gone := st.backends[1]
	time.Sleep(firstLooks)
	st.heading("4. " + gone.name + " vanishes without a word")
	if err := gone.disappear(); err != nil {
		return err
	}
	target := clusterIP(&st.network.families[0])
	trials := st.network.shop.connectOften(ctx, target)
	st.say("Its EndpointSlice still says that it is ready. %d connections from %s to %s,\none every %s; each line has those that began "+
		"within %s, and the bar those that were late:\n", deadConnections, st.network.shop.name, target, duration(deadPause), duration(shown))
	return st.judgeTrials(trials)
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
func (h *host) connectOften(ctx context.Context, to netip.AddrPort) []trial {
	trials := make([]trial, deadConnections)
	began := time.Now()
	var wait sync.WaitGroup
	for i := range trials {
		time.Sleep(time.Until(began.Add(time.Duration(i) * deadPause)))
		wait.Go(func() {
			t := &trials[i]
			t.began = time.Since(began)
			t.err = h.run(func() error {
				_, err := askOnce(ctx, to)
				return err
			})
			t.took = time.Since(began) - t.began
		})
	}
	wait.Wait()
	return trials
}

// judgeTrials draws the connections. It returns an error if one was lost.
func (st *story) judgeTrials(trials []trial) error {
	lateOnes, slowest, lastLate := 0, time.Duration(0), time.Duration(0)
	for i := range trials {
		t := &trials[i]
		if t.err != nil {
			return fmt.Errorf("connection %d of %d, which began %s after the pod had vanished, is lost: %w",
				i+1, len(trials), duration(t.began), t.err)
		}
		if t.took > late {
			lateOnes++
			lastLate = t.began
		}
		slowest = max(slowest, t.took)
	}
	st.trialBars(trials)
	st.say("\nNone was lost. %d were late, by %s at most; the last of them began after %s.", lateOnes, duration(slowest), duration(lastLate))
	st.say("Verdict noticed the repeated packets, asked the pod twice, and sent it nothing any more. Clients that were\n"+
		"waiting for it reached another pod with their next packet. The Service asks for that by the annotation\n"+
		"%q. By default, Verdict only observes.", ejectAnnotation)
	return nil
}

func (st *story) trialBars(trials []trial) {
	perBar := int(shown / deadPause)
	const room = 40
	for first := 0; first < len(trials); first += perBar {
		group := trials[first:min(first+perBar, len(trials))]
		lateOnes, slowest := 0, time.Duration(0)
		for i := range group {
			if group[i].took > late {
				lateOnes++
			}
			slowest = max(slowest, group[i].took)
		}
		st.say("%4.1f s  %s  %2d of %d late, slowest %s", float64(first)*deadPause.Seconds(), st.bar(lateOnes, perBar, room), lateOnes,
			len(group), duration(slowest))
	}
}
