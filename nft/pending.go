package nft

import (
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// pending are the changes that the next Apply makes.
type pending struct {
	mode    mode
	tx      *program.Transaction // the collected changes
	changed changedPorts
	applies uint64 // counts transactions, to notice a port that changes twice in one
}

// mode is what the engine knows of the kernel, and so what the next Apply does.
type mode uint8

const (
	// synced: the kernel has what the mirror has, except for the collected changes. Apply sends these.
	synced mode = iota
	// unplanned: an engine that starts does not know yet what the tables are to have.
	unplanned
	// comparing: the kernel may have anything. Apply compares everything with it, and writes the difference.
	comparing
	// replacing: the kernel refused a transaction, or it was too large to send. Apply writes everything, whatever the kernel
	// has.
	replacing
	// remaking: the kernel refused to replace what is in the tables. Apply deletes them, and affinity with them.
	remaking
)

// distrust has the next Apply compare everything.
func (p *pending) distrust() {
	if p.mode == synced {
		p.mode = comparing
	}
	p.discard()
}

// plan notes that the engine begins to learn what the tables are to have.
func (p *pending) plan() {
	if p.mode == unplanned {
		p.mode = comparing
	}
}

// discard forgets the collected changes if the next Apply does not send them.
func (p *pending) discard() {
	if p.mode != synced {
		p.tx.Reset()
	}
}

// manyChanges is the number of elements from which a port is in Result.Changed. Ports with less cost too little to be
// counted one by one.
const manyChanges = 100

// changedPorts count the elements that single service ports change.
type changedPorts map[contents.PortID]int

func (c *changedPorts) count(id contents.PortID, n int) {
	if n < manyChanges {
		return
	}
	if *c == nil {
		*c = changedPorts{}
	}
	(*c)[id] += n
}

// take returns the counts, and begins anew.
func (c *changedPorts) take() map[contents.PortID]int {
	counts := *c
	*c = nil
	return counts
}
