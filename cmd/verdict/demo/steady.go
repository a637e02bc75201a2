package demo

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The annotations of the scenes in which pods go away. The first asks Verdict to send no new connections to endpoints that do
// not answer, the second also to leave out those that refuse connections, and to hold their refusals back.
const (
	ejectAnnotation    = "verdict-proxy.github.io/outlier-detection: eject"
	refusalsAnnotation = "verdict-proxy.github.io/outlier-detection: \"eject,refusals\""
)

// The connections while pods go away: one every pause. There are more on a machine that has so much other work that the last
// ones are still late.
const (
	fewest = 200
	most   = 800
	pause  = 25 * time.Millisecond
	perBar = 20 // how many connections one bar stands for
)

// The times of a rolling update. The control plane of a cluster takes as long to tell the nodes that a pod is gone.
const (
	untilNextPod = 200 * time.Millisecond
	untilNews    = 700 * time.Millisecond
)

// trial is one connection while pods go away. It is late if the client had to send a packet again.
type trial struct {
	began, took time.Duration
	late        bool
	err         error
}

// untilAsked waits until Verdict has connected to each pod, before anybody else does. It ejects no others.
func (st *story) untilAsked() error {
	st.visited.Wait()
	return nil
}

// vanish lets a pod disappear without a word, as with a node that loses its power.
func (st *story) vanish() error {
	gone := st.endpoints[1]
	st.heading("4. %s vanishes without a word", gone.name)
	if err := gone.disappear(); err != nil {
		return err
	}
	st.say("Its EndpointSlice still says that it is ready.")
	if err := st.draw(st.connectOften(), nil); err != nil {
		return err
	}
	st.say("Verdict noticed the repeated packets, asked the pod twice, and sent it nothing any more.\n"+
		"The Service asks for that: %s. By default, Verdict only observes.", ejectAnnotation)
	return nil
}

// rollOut replaces the pods one after the other, and connects all the time.
func (st *story) rollOut() error {
	st.heading("4. A rolling update replaces all three pods, and each old one just exits")
	fresh, err := st.addPods([]string{"pod-d", "pod-e", "pod-f"})
	if err != nil {
		return err
	}
	updated := make(chan error, 1)
	go func() { updated <- st.replace(fresh) }()
	trials := st.connectOften()
	if err := <-updated; err != nil {
		return fmt.Errorf("replace the pods: %w", err)
	}
	st.say("Without preStop and without draining. The EndpointSlice says so %v later.", untilNews)
	// What the old pod had accepted when it exited is not lost: no proxy can save it.
	if err := st.draw(trials, unix.ECONNRESET); err != nil {
		return err
	}
	st.say("Verdict dropped the first refusal to each client. The clients' next packets reached other pods.\n"+
		"The Service asks for that: %s.\n"+
		"Without it, clients are refused until the EndpointSlice changes.", refusalsAnnotation)
	return nil
}

// replace puts a new pod in the place of each old one. The new one is ready before the old one exits.
func (st *story) replace(fresh []*host) error {
	for _, pod := range fresh {
		time.Sleep(untilNextPod)
		st.endpoints = append(st.endpoints, pod)
		if err := st.writeManifest(); err != nil {
			return err
		}
		time.Sleep(untilNews)
		if err := st.endpoints[0].exit(); err != nil {
			return err
		}
		time.Sleep(untilNews)
		st.endpoints = st.endpoints[1:]
		if err := st.writeManifest(); err != nil {
			return err
		}
	}
	return nil
}

// connectOften makes connections to the cluster IP, and begins each at its time, even while others wait.
func (st *story) connectOften() (trials []trial) {
	began := time.Now()
	for n := fewest; len(trials) < most; n = perBar {
		some, first := make([]trial, n), time.Now()
		var wait sync.WaitGroup
		for i := range some {
			time.Sleep(time.Until(first.Add(time.Duration(i) * pause)))
			wait.Go(func() { st.try(&some[i], began) })
		}
		wait.Wait()
		trials = append(trials, some...)
		if late, _ := slowest(some[n-perBar:]); late == 0 {
			break
		}
	}
	return trials
}

func (st *story) try(t *trial, began time.Time) {
	t.began = time.Since(began)
	t.err = st.shop.run(func() error {
		_, again, err := connect(atClusterIP(&st.network.families[0]))
		t.late = again > 0
		return err
	})
	t.took = time.Since(began) - t.began
}

// slowest returns how many connections are late, and the longest time that one took.
func slowest(trials []trial) (late int, took time.Duration) {
	for i := range trials {
		if trials[i].late {
			late++
		}
		took = max(took, trials[i].took)
	}
	return late, took
}

// draw draws the connections. It returns an error if one was lost, other than by a fault that is excused.
func (st *story) draw(trials []trial, excused error) error {
	st.say("%d connections from %s to %s, one every %v.\nEach line has those that began within %v, and the bar those that were late:",
		len(trials), st.shop.name, atClusterIP(&st.network.families[0]), pause, perBar*pause)
	accepted := 0
	for i := range trials {
		switch t := &trials[i]; {
		case t.err == nil:
		case errors.Is(t.err, excused):
			accepted++
		default:
			return fmt.Errorf("connection %d of %d, which began after %v, is lost: %w", i+1, len(trials), duration(t.began), t.err)
		}
	}
	for group := range slices.Chunk(trials, perBar) {
		late, took := slowest(group)
		st.say("%4.1f s  %s  %2d of %d late, slowest %v", group[0].began.Seconds(), bar(late, perBar), late, len(group), duration(took))
	}
	late, took := slowest(trials)
	st.say("\nNone was lost. %d were late, by %v at most.", late, duration(took))
	if accepted > 0 {
		st.say("%d more were open when their pod exited.", accepted)
	}
	return nil
}
