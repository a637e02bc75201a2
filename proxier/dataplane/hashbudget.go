package dataplane

import (
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/program"
)

// maxHashSlots bounds the hash tables of one Service in one family. Two of the largest tables fit, or eight tables of
// 17 to 250 endpoints. A slot takes about 220 bytes of the kernel's memory, so this is 29 MB. Ports with the same
// endpoints share a table, so only a Service whose ports have many different lists of endpoints, or session affinity,
// comes near.
const maxHashSlots = 1 << 17

// hashBudget counts the slots of a Service. It depends on the Service alone, so it is the same on each node that has the
// same objects, and after a restart.
type hashBudget struct {
	tables map[string]bool
	slots  map[program.Family]int
}

// take counts the tables of a port. It reports whether they fit.
func (b *hashBudget) take(p *contents.Port) bool {
	if !p.Method.Hashes() {
		return true
	}
	if b.tables == nil {
		b.tables, b.slots = map[string]bool{}, map[program.Family]int{}
	}
	more := 0
	tables := hashing.Needed(p)
	for key, slots := range tables {
		if !b.tables[key] {
			more += slots
		}
	}
	if b.slots[p.Family]+more > maxHashSlots {
		return false
	}
	for key := range tables {
		b.tables[key] = true
	}
	b.slots[p.Family] += more
	return true
}
