//go:build e2e

package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// frailPod is an endpoint of the Services with frail endpoints, which the pods a and c answer as well.
const frailPod = "b"

// healthFaults are what happens to endpoints of these Services. A daemon that does not run ejects nobody, so each comes
// alone.
func healthFaults() []fault {
	return []fault{
		{name: "health: endpoint vanishes", weight: 4, alone: true, begin: vanishes},
		{name: "health: endpoint refuses", weight: 6, alone: true, begin: refusing},
		{name: "health: endpoint flaps", weight: 6, alone: true, begin: flaps},
		{name: "health: endpoint refuses and leaves its slice", weight: 6, alone: true, begin: leaves},
		{name: "health: checks fail", weight: 6, alone: true, begin: checksFail},
	}
}

// vanishes takes the link to the endpoint away.
func vanishes(b *bed, r *rand.Rand) (func() error, error) {
	return func() error {
		pause(r, 4*time.Second)
		return b.world.Plug(frailPod, true)
	}, b.world.Plug(frailPod, false)
}

func refusing(b *bed, r *rand.Rand) (func() error, error) {
	return func() error {
		pause(r, 4*time.Second)
		return refuse(b.world, frailPod, refusedTarget, false)
	}, refuse(b.world, frailPod, refusedTarget, true)
}

// refuse makes a port of a pod refuse new connections as if no program listened there, or accept them again.
func refuse(w *lab.World, pod string, port uint16, on bool) error {
	ns, err := w.Place(pod)
	if err != nil {
		return err
	}
	table := fmt.Sprintf("inet refuse-%d", port)
	if !on {
		return ns.Load("delete table " + table)
	}
	return ns.Load(fmt.Sprintf("table %s { chain input { type filter hook input priority 0; "+
		"tcp dport %d tcp flags & (syn | ack) == syn reject with tcp reset; }; }", table, port))
}

// flaps has the endpoint refuse again and again. In between it accepts for longer than a client takes to repeat its first
// packet: nobody notices that an endpoint fails which is good whenever it is asked, and the second refusal passes.
func flaps(b *bed, r *rand.Rand) (func() error, error) {
	for range 1 + r.IntN(3) {
		if err := refuse(b.world, frailPod, refusedTarget, true); err != nil {
			return nil, err
		}
		pause(r, time.Second)
		if err := refuse(b.world, frailPod, refusedTarget, false); err != nil {
			return nil, err
		}
		time.Sleep(1500 * time.Millisecond)
		pause(r, time.Second)
	}
	return nil, nil
}

// leaves has the endpoint refuse, and shortly before or after it leave its slices, as a pod does whose program exits at
// once. Then it comes back.
func leaves(b *bed, r *rand.Rand) (func() error, error) {
	all := stableServices()
	s := &all[len(all)-2] // refused
	steps := []func() error{
		func() error { return refuse(b.world, frailPod, refusedTarget, true) },
		func() error { return b.writeSlices(s, "a", "c") },
	}
	if r.IntN(2) == 0 {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
		pause(r, time.Second)
	}
	return func() error {
		return errors.Join(refuse(b.world, frailPod, refusedTarget, false), b.writeSlices(s, s.pods()...))
	}, nil
}

// checksFail fails the active checks of some endpoints, or of all. They still accept connections.
func checksFail(b *bed, r *rand.Rand) (func() error, error) {
	var failing []string
	for _, pod := range []string{"a", "b", "c"} {
		if r.IntN(2) == 0 {
			failing = append(failing, pod)
		}
	}
	each := func(on bool) error {
		var errs []error
		for _, pod := range failing {
			errs = append(errs, refuse(b.world, pod, checkPort, on))
		}
		return errors.Join(errs...)
	}
	return func() error {
		pause(r, 4*time.Second)
		return each(false)
	}, each(true)
}
