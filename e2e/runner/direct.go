package runner

import (
	"errors"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// A test that is written in Go drives the bed itself: Begin, then Steps and whatever it wants to look at in between, then
// End.

// Begin has the proxy run with these flags.
func (b *Bed) Begin(flags ...string) error {
	return b.prepare(&scenario.Scenario{Flags: flags, Families: lab.Families()})
}

// Steps takes steps that are written as in a scenario file.
func (b *Bed) Steps(text string) error {
	list, err := scenario.Parse("steps", "== steps\n"+text)
	if err != nil {
		return err
	}
	_, err = b.steps(list[0])
	return err
}

// Settle returns when the proxy has followed all changes so far.
func (b *Bed) Settle() error {
	if !b.pending {
		return nil
	}
	return b.fence()
}

// End removes what the steps made; the proxy goes on. After a failure the next test begins with a new proxy.
func (b *Bed) End(failed bool) error {
	err := b.cleanUp()
	if failed || err != nil {
		return errors.Join(err, b.abandon())
	}
	return nil
}

// World is where it happens.
func (b *Bed) World() *lab.World { return b.world }

// Log is the end of the proxy's log.
func (b *Bed) Log(lines int) string { return b.proxy.log(lines) }

// Restart starts the proxy again with other flags, over what it left in the kernel.
func (b *Bed) Restart(flags ...string) error {
	b.pending = true
	return errors.Join(b.proxy.stop(), b.proxy.start(append(b.source.Arguments(), flags...)))
}
