package hashing

import (
	"slices"

	"github.com/verdict-proxy/verdict/nft/program"
)

// targetPorts own the map of target ports, which the pools with hash tables share.
type targetPorts struct {
	used   map[uint16]*portUse
	unused []uint16 // that have or had no pools
}

// portUse counts the pools with a target port.
type portUse struct {
	pools   int
	emptied uint64 // the transaction in which the last pool left
}

func (p *targetPorts) acquire(w program.Writer, port uint16) {
	if port == 0 {
		return
	}
	if p.used[port] == nil {
		if p.used == nil {
			p.used = map[uint16]*portUse{}
		}
		p.used[port] = &portUse{}
		w.Insert(program.TargetPorts, targetPort(w, port))
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

// leave deletes the ports that have had no pool since an earlier transaction.
func (p *targetPorts) leave(w program.Writer, round uint64) {
	p.unused = slices.DeleteFunc(p.unused, func(port uint16) bool {
		use := p.used[port]
		if use == nil || use.pools > 0 {
			return true
		}
		if use.emptied == round {
			return false
		}
		w.Remove(program.TargetPorts, w.Element("", func(b *program.Builder) { b.Word(uint32(port)) }, nil))
		delete(p.used, port)
		return true
	})
}

// list adds all elements.
func (p *targetPorts) list(w program.Writer) {
	for port := range p.used {
		w.Insert(program.TargetPorts, targetPort(w, port))
	}
}

func targetPort(w program.Writer, port uint16) program.Element {
	e := w.Element("", func(b *program.Builder) { b.Word(uint32(port)) }, func(b *program.Builder) { b.Port(port) })
	e.DataLen = uint8(program.TypePort.Bytes) // without padding: it is no concatenation
	return e
}
