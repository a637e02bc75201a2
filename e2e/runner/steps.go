package runner

import (
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
		on((*Bed).apply),
		on((*Bed).patch),
		on(func(b *Bed, do *scenario.Delete) error { return b.delete(do.Kind, do.Name) }),
		on((*Bed).endpoints),

		on((*Bed).restart),
		on(func(b *Bed, _ *scenario.Stop) error { return b.proxy.stop() }),
		on(func(b *Bed, _ *scenario.Start) error { return b.start() }),
		on((*Bed).changeAddress),
		on((*Bed).sysctl),
		on(func(_ *Bed, do *scenario.Pause) error { time.Sleep(do.For); return nil }),

		on((*Bed).probe),
		on((*Bed).open),
		on((*Bed).send),
		on(eventually((*Bed).burst)),
		on(eventually((*Bed).spread)),
		on(eventually((*Bed).many)),
		on((*Bed).crowd),
		on((*Bed).loop),
		on((*Bed).endLoop),

		on(eventually((*Bed).tracked)),
		on(eventually((*Bed).http)),
		on(eventually((*Bed).event)),
	}
}

// on makes an implementation out of the function that takes the steps of a type.
func on[S any](take func(*Bed, *S) error) implementation {
	return implementation{
		step: reflect.TypeFor[*S](),
		take: func(b *Bed, do any) error { return take(b, do.(*S)) },
	}
}

// eventually makes an implementation that tries a step until it succeeds or patience ends.
func eventually[S any](try func(*Bed, *S) error) func(*Bed, *S) error {
	return func(b *Bed, do *S) error { return until(func() error { return try(b, do) }) }
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
