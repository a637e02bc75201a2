package runner

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/verdict-proxy/verdict/e2e/scenario"
)

// implementation is how the bed takes the steps of one type.
type implementation struct {
	step reflect.Type
	take func(*Bed, any) error
}

// implementations has one entry for each type of step. A test fails when a verb of package scenario has none.
func implementations() []implementation {
	return []implementation{
		on(objectsOf, (*objects).apply),
		on(objectsOf, (*objects).patch),
		on(objectsOf, func(o *objects, do *scenario.Delete) error { return o.delete(do.Kind, do.Name) }),
		on(objectsOf, (*objects).endpoints),

		on(whole, (*Bed).restart),
		on(whole, func(b *Bed, _ *scenario.Stop) error { return b.proxy.stop() }),
		on(whole, func(b *Bed, _ *scenario.Start) error { return b.start() }),
		on(nodeOf, (*node).changeAddress),
		on(nodeOf, (*node).sysctl),
		on(whole, func(_ *Bed, do *scenario.Pause) error { time.Sleep(do.For); return nil }),

		on(clientsOf, (*clients).probe),
		on(clientsOf, (*clients).open),
		on(clientsOf, (*clients).send),
		on(clientsOf, eventually((*clients).burst)),
		on(clientsOf, eventually((*clients).spread)),
		on(clientsOf, (*clients).crowd),
		on(clientsOf, (*clients).loop),
		on(clientsOf, (*clients).endLoop),

		on(clientsOf, eventually((*clients).tracked)),
		on(clientsOf, eventually((*clients).http)),
		on(objectsOf, eventually((*objects).event)),
	}
}

// on makes an implementation out of the function with which a part of the bed takes the steps of a type.
func on[P, S any](part func(*Bed) P, take func(P, *S) error) implementation {
	return implementation{
		step: reflect.TypeFor[*S](),
		take: func(b *Bed, do any) error { return take(part(b), do.(*S)) },
	}
}

func whole(b *Bed) *Bed         { return b }
func objectsOf(b *Bed) *objects { return b.objects }
func clientsOf(b *Bed) *clients { return b.clients }
func nodeOf(b *Bed) *node       { return b.node }

// eventually makes an implementation that tries a step until it succeeds or patience ends.
func eventually[P, S any](try func(P, *S) error) func(P, *S) error {
	return func(part P, do *S) error { return until(func() error { return try(part, do) }) }
}

// step takes one step with its implementation.
func (b *Bed) step(do any) error {
	for _, i := range implementations() {
		if i.step == reflect.TypeOf(do) {
			return i.take(b, do)
		}
	}
	return fmt.Errorf("package runner does not implement %T: add it to implementations in steps.go", do)
}

func (b *Bed) restart(do *scenario.Restart) error {
	if do.Kill {
		return errors.Join(b.proxy.kill(), b.start())
	}
	return errors.Join(b.proxy.stop(), b.start())
}

// start starts the proxy again, with the same arguments. Its tables are still in the kernel.
func (b *Bed) start() error {
	b.objects.pending = true
	return b.proxy.start(b.proxy.arguments)
}
