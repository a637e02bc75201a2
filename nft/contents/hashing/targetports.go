package hashing

import (
	"slices"

	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// targetPorts own the map of target ports, which the pools with hash tables share.
type targetPorts struct {
	ledger *ledger.Ledger
	used   map[uint16]*portUse
	unused []uint16 // that have or had no pools
}

// portUse counts the pools with a target port.
type portUse struct {
	pools   int
	emptied uint64 // the transaction in which the last pool left
}

func (p *targetPorts) acquire(port uint16) {
	if port == 0 {
		return
	}
	if p.used[port] == nil {
		p.used[port] = &portUse{}
		var b program.Builder
		b.Word(uint32(port))
		b.Port(port)
		p.ledger.Put(program.TargetPorts, b.Arena[:4], b.Arena[4:4+program.TypePort.Bytes]) // without padding: it is no concatenation
	}
	p.used[port].pools++
}

func (p *targetPorts) release(port uint16, round uint64) {
	if port == 0 {
		return
	}
	use := p.used[port]
	if use.pools--; use.pools == 0 {
		use.emptied = round
		p.unused = append(p.unused, port)
	}
}

// leave ends the ports that have had no pool since an earlier transaction.
func (p *targetPorts) leave(round uint64) {
	p.unused = slices.DeleteFunc(p.unused, func(port uint16) bool {
		use := p.used[port]
		if use == nil || use.pools > 0 {
			return true
		}
		if use.emptied == round {
			return false
		}
		var b program.Builder
		b.Word(uint32(port))
		p.ledger.Drop(program.TargetPorts, b.Arena)
		delete(p.used, port)
		return true
	})
}
