package table

import (
	"fmt"
	"testing"

	"github.com/verdict-proxy/verdict/nft/kernel"
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

// TestHasFlowtable: a flowtable of another shape, such as one without counters, is not ours, and one that nobody wants goes.
func TestHasFlowtable(t *testing.T) {
	ours := program.OurFlowtable()
	deaf, late := ours, ours
	deaf.Flags, late.Priority = 0, 1
	for _, tt := range []struct {
		name  string
		there map[string]kernel.FoundFlowtable
		fast  uint32
		want  bool
	}{
		{"neither", nil, 0, true},
		{"missing", nil, 20, false},
		{"ours", map[string]kernel.FoundFlowtable{program.FastPathTable: {Flowtable: ours, Devices: []string{"eth0"}}}, 20, true},
		{"without counters", map[string]kernel.FoundFlowtable{program.FastPathTable: {Flowtable: deaf}}, 20, false},
		{"another priority", map[string]kernel.FoundFlowtable{program.FastPathTable: {Flowtable: late}}, 20, false},
		{"not wanted", map[string]kernel.FoundFlowtable{program.FastPathTable: {Flowtable: ours}}, 0, false},
		{"of others", map[string]kernel.FoundFlowtable{"theirs": {}}, 0, true},
	} {
		if got := hasFlowtable(kernel.Existing{Flowtables: tt.there}, program.Program{FastPath: tt.fast}); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
