package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// refusalsAnnotation asks Verdict to leave out endpoints that refuse connections as well, and to hold their refusals back.
const refusalsAnnotation = "verdict-proxy.github.io/outlier-detection: \"eject,refusals\""

// The times of a rolling update. The control plane of a cluster takes as long to tell the nodes that a pod is gone.
const (
	beforeUpdate = 300 * time.Millisecond
	untilNews    = 700 * time.Millisecond
	untilNextPod = 600 * time.Millisecond
)

// rollOut replaces the pods one after the other, and connects all the time.
func (st *story) rollOut(ctx context.Context) error {
	st.heading("4. A rolling update replaces all three pods, and each old one just exits")
	fresh, err := st.freshPods()
	if err != nil {
		return err
	}
	updated := make(chan error, 1)
	go func() { updated <- st.replace(ctx, fresh) }()
	target := clusterIP(&st.network.families[0])
	trials := st.network.shop.connectOften(ctx, target)
	if err := <-updated; err != nil {
		return err
	}
	st.say("The program of an old pod exits at once, without preStop and without draining. Its EndpointSlice says so %s later.\n"+
		"%d connections from %s to %s, one every %s; each line has those that began within %s, and the bar\nthose that were late:\n",
		duration(untilNews), len(trials), st.network.shop.name, target, duration(deadPause), duration(perBar*deadPause))
	return st.judgeUpdate(trials)
}

// freshPods makes the pods that take the place of the present ones.
func (st *story) freshPods() (list []*host, err error) {
	first := len(st.backends) + 1 // after the pod that connects
	for i, name := range []string{"pod-d", "pod-e", "pod-f"} {
		pod, err := st.network.addPod(first+i, name)
		if err != nil {
			return nil, err
		}
		if err := pod.serve(backendPort); err != nil {
			return nil, err
		}
		list = append(list, pod)
	}
	return list, nil
}

// replace puts a new pod in the place of each old one. The new one is ready before the old one exits.
func (st *story) replace(ctx context.Context, fresh []*host) error {
	pause := beforeUpdate
	for _, pod := range fresh {
		old := st.backends[0]
		for _, step := range []func() error{
			func() error { st.backends = append(st.backends, pod); return st.writeSlices() },
			old.exit,
			func() error { st.backends = st.backends[1:]; return st.writeSlices() },
		} {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
			if err := step(); err != nil {
				return fmt.Errorf("replace %s by %s: %w", old.name, pod.name, err)
			}
			pause = untilNews
		}
		pause = untilNextPod
	}
	return nil
}

// exit ends the program of a pod. The kernel of the pod refuses connections from now on.
func (h *host) exit() error {
	var errs []error
	for _, l := range h.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// judgeUpdate draws the connections. It returns an error if one was lost. One that the old pod had accepted when it exited is
// not: no proxy can save it.
func (st *story) judgeUpdate(trials []trial) error {
	accepted := 0
	for i := range trials {
		if t := &trials[i]; errors.Is(t.err, unix.ECONNRESET) {
			accepted++
			t.err = nil
		}
	}
	s, err := summarize(trials, "the update had begun")
	if err != nil {
		return err
	}
	st.trialBars(trials)
	st.say("\nNone was lost. %d were late, by %s at most.", s.late, duration(s.slowest))
	if accepted > 0 {
		st.say("%d more were open when their pod exited.", accepted)
	}
	st.say("The old pods refused connections, but Verdict dropped the first refusal to each client and left these pods out.\n"+
		"The clients' next packets, a second later, reached others. The Service asks for that by the annotation\n%s.\n"+
		"Without it, clients are refused until the EndpointSlice changes.", refusalsAnnotation)
	return nil
}
