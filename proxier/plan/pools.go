package plan

import (
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// pool lists the endpoints of a selection.
func (c *candidates) pool(family state.Family, of selection, r *room) []Endpoint {
	n := c.count(of)
	if n == 0 {
		return nil
	}
	n = r.element(n)
	out := make([]Endpoint, 0, n)
	for i := range c.list {
		e := &c.list[i]
		if of.has(e.flags) && len(out) < n {
			e.flags |= pooled
			out = append(out, Endpoint{
				Addr: e.addr(family), Weight: e.weight, Local: e.flags&local != 0, Backup: e.flags&backup != 0,
			})
		}
	}
	return out
}

// keeping lists the endpoints with all of some flags that keep what goes to them. An endpoint of a pool has its room
// already and is never left out: flows that the pool begins would be deleted again. A bad one that is in no pool is left
// out, so that its flows go elsewhere.
func (c *candidates) keeping(all flags, family state.Family, r *room) []netip.AddrPort {
	inPools := c.count(selection{some: true, all: all | pooled})
	others := c.count(selection{some: true, all: all, not: pooled | bad})
	if inPools+others == 0 {
		return nil
	}
	others = r.element(others)
	out := make([]netip.AddrPort, 0, inPools+others)
	for i := range c.list {
		e := &c.list[i]
		switch {
		case e.flags&all != all:
			continue
		case e.flags&pooled != 0:
		case others == 0 || e.flags&bad != 0:
			continue
		default:
			others--
		}
		out = append(out, e.addr(family))
	}
	return out
}
