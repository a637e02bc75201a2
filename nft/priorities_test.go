package nft

import (
	"encoding/binary"
	"testing"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestNumbersAreNoPriorities: what a translated packet has in its priority field is larger than what IPv4 forwarding sets from
// the TOS field. So the program can clear the numbers of packets that a bridge forwards, and leave those priorities.
func TestNumbersAreNoPriorities(t *testing.T) {
	const largestPriority = 15
	for _, x := range examples() {
		m := OpenMemory(Options{})
		x.install(t, m.Engine)
		for _, set := range []program.SetID{program.Pools, program.StickySlots, program.HashTables} {
			for _, f := range program.Families() {
				if err := m.kernel.DumpElements(f, set, func(e kernel.Found) {
					if n := binary.NativeEndian.Uint32(e.Data); n <= largestPriority {
						t.Errorf("%s: %s %s has the number %d", x.name, f, set.Name(), n)
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
