package nft

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/program"
)

// Guard protects addresses before they become local for IPVS: from now on, clients reach only frontends there. Guard
// sends its own transaction and does not wait for Apply, because an address must never be local without its guard. If
// there is no table yet that can protect the addresses, Guard returns false, and they are protected after the next
// Apply.
func (e *Engine) Guard(addrs []netip.Addr) (bool, error) {
	t := &program.Transaction{}
	ready := true
	for _, tb := range e.tables {
		fresh := tb.Want.Shared.Guard(tb.Family, addrs)
		if e.mode != synced { // the kernel's elements are unknown
			fresh = slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return program.FamilyOf(a) != tb.Family })
		}
		if len(fresh) == 0 {
			continue
		}
		if e.mode != synced {
			there, err := tb.HasGuards(e.conn)
			if err != nil {
				return false, err
			}
			ready = ready && there
		}
		tb.Want.Shared.List(t.For(tb.Family), program.IPVSAddresses, fresh...)
	}
	if !ready {
		e.distrust()
	}
	if !ready || t.Empty() {
		return ready, nil
	}
	if err := e.sendApart(t); err != nil {
		e.distrust()
		return false, fmt.Errorf("guard %d addresses of IPVS: %w; the next transaction compares everything with the kernel",
			len(addrs), err)
	}
	return true, nil
}

// Unguard ends the protection of addresses that are no longer local. The next Apply does it.
func (e *Engine) Unguard(addrs []netip.Addr) {
	for _, tb := range e.tables {
		tb.Want.Shared.Unguard(addrs)
	}
}
