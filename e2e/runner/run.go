package runner

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// Applies reports whether a scenario can run in the bed.
func (b *Bed) Applies(s *scenario.Scenario) bool {
	return slices.Contains(s.Families, b.options.Family) &&
		(s.OnlyAPIServer == "" || b.options.Source == FromAPIServer) &&
		(s.OnlyManifests == "" || b.options.Source == FromManifests) &&
		(s.NotUpstream == "" || !b.upstream) && (s.NotIPVS == "" || !b.options.Proxy.IPVS)
}

// Run runs a scenario and removes everything that it made. It returns how many steps checked something.
func (b *Bed) Run(s *scenario.Scenario) (checked int, err error) {
	if err := b.prepare(s); err != nil {
		return 0, errors.Join(err, b.abandon())
	}
	checked, err = b.steps(s)
	if err == nil {
		err = b.proxy.err()
	}
	if err != nil {
		err = errors.Join(err, b.explain(s))
	}
	if clean := b.cleanUp(); clean != nil || err != nil {
		return checked, errors.Join(err, clean, b.abandon())
	}
	return checked, nil
}

// prepare writes the Nodes and starts the proxy with the scenario's flags, unless it already runs with them.
func (b *Bed) prepare(s *scenario.Scenario) error {
	for _, o := range b.initialObjects() {
		if err := b.objects.source.Put(o); err != nil {
			return err
		}
	}
	flags, err := s.Arguments(b.options.Family)
	if err != nil {
		return err
	}
	arguments := append(b.objects.source.Arguments(), flags...)
	if b.proxy.process != nil && slices.Equal(arguments, b.proxy.arguments) {
		return nil
	}
	if err := errors.Join(b.proxy.stop(), b.proxy.clean()); err != nil {
		return err
	}
	b.objects.pending = true
	return b.proxy.start(arguments)
}

// steps takes the steps. Adjacent probes that do not depend on each other run at the same time.
func (b *Bed) steps(s *scenario.Scenario) (checked int, err error) {
	for i := 0; i < len(s.Steps); {
		group := concurrent(s.Steps[i:])
		if s.Steps[i].Kind() != scenario.Change {
			if err := b.Settle(); err != nil {
				return checked, b.failed(s, &s.Steps[i], err)
			}
		}
		var errs []error
		if len(group) > 1 {
			errs = b.probes(s, group)
		} else if err := b.step(b.variant(&s.Steps[i])); err != nil {
			errs = append(errs, b.failed(s, &s.Steps[i], err))
		}
		for range group {
			if s.Steps[i].Expects() {
				checked++
			}
			i++
		}
		if err := errors.Join(errs...); err != nil {
			return checked, err
		}
	}
	return checked, nil
}

// upstreamSettles is the pause before a probe of something that upstream does differently. Often the difference is
// that upstream does nothing. Without the pause such a probe would succeed before upstream had time to do anything.
const upstreamSettles = time.Second

// probes runs several probes at the same time.
func (b *Bed) probes(s *scenario.Scenario, steps []scenario.Step) []error {
	errs := make([]error, len(steps))
	var running sync.WaitGroup
	for i := range steps {
		step := &steps[i]
		running.Go(func() {
			if b.upstream && step.Upstream != nil {
				time.Sleep(upstreamSettles)
			}
			if err := b.step(b.variant(step)); err != nil {
				errs[i] = b.failed(s, step, err)
			}
		})
	}
	running.Wait()
	return errs
}

// variant is what the step does for the proxy under test.
func (b *Bed) variant(step *scenario.Step) any {
	if b.upstream && step.Upstream != nil {
		return step.Upstream.Do
	}
	if b.options.Proxy.IPVS && step.IPVS != nil {
		return step.IPVS.Do
	}
	return step.Do
}

// concurrent returns the probes at the beginning that can run at the same time, or else the first step.
func concurrent(steps []scenario.Step) []scenario.Step {
	n := 0
	for n < len(steps) {
		p, ok := steps[n].Do.(*scenario.Probe)
		if !ok || p.Sequential() {
			break
		}
		n++
	}
	return steps[:max(n, 1)]
}

// failed adds the step to its error, with its place in the file.
func (b *Bed) failed(s *scenario.Scenario, step *scenario.Step, err error) error {
	text := step.Text
	if b.upstream && step.Upstream != nil {
		text += " (kube-proxy => " + step.Upstream.Instead + ")"
	}
	if b.options.Proxy.IPVS && step.IPVS != nil {
		text += " (ipvs => " + step.IPVS.Instead + ")"
	}
	return fmt.Errorf("%s.txt:%d: %s\n    %w", s.File, step.Line, text, err)
}

// explain saves what the node is like after a failure. It returns an error that names the folder and shows the end of the
// proxy's log.
func (b *Bed) explain(s *scenario.Scenario) error {
	process := b.proxy.running()
	name := fmt.Sprintf("%s/%s/%s/%s", b.options.Source, b.options.Family, s.File, s.Name)
	dir, err := lab.SaveMoment(name, b.world.Node, process)
	return errors.Join(err, fmt.Errorf("    rules, flows and log of that moment are in %s; the proxy's log ends:\n%s", dir, process.Log(8)))
}

// cleanUp removes everything that the scenario made and restores everything that it changed.
func (b *Bed) cleanUp() error {
	var errs []error
	for _, l := range b.clients.loops {
		l.end()
	}
	for _, f := range b.clients.flows {
		f.Close()
	}
	for _, o := range b.objects.present {
		// A changed Node is deleted too, because some of its fields cannot be changed back. The next scenario creates
		// it again.
		errs = append(errs, b.objects.source.Delete(o))
	}
	for i := len(b.node.undo) - 1; i >= 0; i-- {
		errs = append(errs, b.node.undo[i]())
	}
	b.objects.pending = b.objects.pending || len(b.objects.present) > 0
	b.forget()
	return errors.Join(append(errs, b.world.Node.ForgetFlows())...)
}

// abandon ends the proxy and removes its tables, so that the next scenario starts from nothing.
func (b *Bed) abandon() error { return errors.Join(b.proxy.kill(), b.proxy.clean()) }

// A test in Go uses a bed without a scenario file: it calls Begin, then Steps and its own checks, then End.

// Begin starts the proxy with these flags, unless it already runs with them.
func (b *Bed) Begin(flags ...string) error {
	return b.prepare(&scenario.Scenario{Flags: flags, Families: lab.Families()})
}

// Steps takes steps, written as in a scenario file.
func (b *Bed) Steps(text string) error {
	list, err := scenario.Parse("steps", "== steps\n"+text)
	if err != nil {
		return err
	}
	_, err = b.steps(list[0])
	return err
}

// Settle returns when the proxy has followed all earlier changes.
func (b *Bed) Settle() error {
	if !b.objects.pending {
		return nil
	}
	return b.fence.wait()
}

// End removes everything that the steps made. The proxy keeps running, but after a failure the next test gets a new
// one.
func (b *Bed) End(failed bool) error {
	err := b.cleanUp()
	if failed || err != nil {
		return errors.Join(err, b.abandon())
	}
	return nil
}

// World is the network of the bed.
func (b *Bed) World() *lab.World { return b.world }

// Process is the proxy; nil: it does not run.
func (b *Bed) Process() *lab.Process { return b.proxy.running() }

// Restart starts the proxy again with other flags. Its tables are still in the kernel.
func (b *Bed) Restart(flags ...string) error {
	b.objects.pending = true
	return errors.Join(b.proxy.stop(), b.proxy.start(append(b.objects.source.Arguments(), flags...)))
}
