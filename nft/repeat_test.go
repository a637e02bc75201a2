package nft

import (
	"testing"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// repeatingKernel repeats some elements in a dump and leaves out as many, as the kernel does while it resizes a set.
type repeatingKernel struct{ kernel.NFTables }

func (k repeatingKernel) DumpElements(f program.Family, set program.SetID, each func(kernel.Found)) error {
	n := 0
	return k.NFTables.DumpElements(f, set, func(e kernel.Found) {
		if n++; n%3 == 0 {
			return
		}
		each(e)
		if n%3 == 1 {
			each(e)
		}
	})
}

// TestRepairOfRepeatedElements: what a dump repeats is not deleted.
func TestRepairOfRepeatedElements(t *testing.T) {
	m := OpenMemory(Options{})
	mustSet(t, m.Engine, manyPorts(program.IPv4, 0, 20)...)
	mustSet(t, m.Engine, hashPort("hash:p", 1, 80, 1, 2, 3))
	mustApply(t, m.Engine)
	before := m.unstamped()
	m.conn = repeatingKernel{m.kernel}
	if r, err := m.Repair(kernel.Interference{Lost: true}); err != nil || r.Full || r.Deleted > 0 {
		t.Errorf("full %t, %d deleted, %v", r.Full, r.Deleted, err)
	}
	if m.unstamped() != before {
		t.Error("the tables are not as they were")
	}
}
