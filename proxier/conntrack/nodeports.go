package conntrack

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// SetNodePortAddresses records at which addresses node ports answer. Each node port at an address that is gone counts as
// a removed frontend. At an address that is new, clients may have been sending before it answered.
func (t *Tracker) SetNodePortAddresses(addrs []netip.Addr) {
	gone, come := notIn(addrs, t.nodePortAddrs), notIn(t.nodePortAddrs, addrs)
	t.nodePortAddrs = slices.Clone(addrs)
	if len(gone)+len(come) == 0 {
		return
	}
	t.revision++
	var nodePorts []Frontend
	for f := range t.frontends {
		if !f.Addr.IsValid() {
			nodePorts = append(nodePorts, f)
		}
	}
	for _, f := range nodePorts {
		if slices.ContainsFunc(come, func(a netip.Addr) bool { return state.FamilyOf(a) == f.Family }) {
			t.note(f, t.frontends[f], true)
		}
		for _, a := range gone {
			if state.FamilyOf(a) == f.Family {
				t.endNodePort(Frontend{Addr: a, Port: f.Port, Family: f.Family})
			}
		}
	}
}

// endNodePort notes that a node port does not answer at an address any more. Another frontend may have that address and
// port.
func (t *Tracker) endNodePort(f Frontend) {
	is := t.frontends[f]
	switch {
	case is != nil && is.port != nil:
		return
	case is == nil && t.removed >= maxRemoved:
		t.forgotten++
		return
	case is == nil:
		is = t.add(f)
	}
	t.note(f, is, true)
}

// notIn returns the addresses of a list that the other list lacks.
func notIn(other, list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return slices.Contains(other, a) })
}
