package table

import (
	"fmt"
	"testing"

	"github.com/verdict-proxy/verdict/nft/program"
)

// TestShapesAreBounded: a tenant can have chains come and go, each with a name of its own.
func TestShapesAreBounded(t *testing.T) {
	var c compiled
	p := program.Program{Family: program.IPv4}
	for i := range 2*maxShapes + 1 {
		c.rules(p, &program.Chain{Name: fmt.Sprint("random-3-sticky-", i, "s"), Rules: p.Unserved()})
		if len(c.shapes) > maxShapes {
			t.Fatalf("the rules of %d chains are remembered", len(c.shapes))
		}
	}
}
