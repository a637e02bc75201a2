package runner

import (
	"errors"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

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
