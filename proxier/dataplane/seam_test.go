package dataplane

import (
	"reflect"
	"testing"
)

// TestSeamIsNarrow keeps the interfaces to the engines small: with more methods, too much of an engine is outside.
func TestSeamIsNarrow(t *testing.T) {
	const most = 9
	for _, seam := range []reflect.Type{reflect.TypeFor[Ruleset](), reflect.TypeFor[Balancer]()} {
		if n := seam.NumMethod(); n > most {
			t.Errorf("%s has %d methods; at most %d", seam, n, most)
		}
	}
}
