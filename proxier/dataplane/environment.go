package dataplane

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/plan"
)

// Globals are what the rules have in common. Of those in an Environment, the Dataplane sets IPVS.
type Globals = contents.Globals

// Environment is what all Services share. Lists are sorted, so that equal environments compare equal.
type Environment struct {
	Globals
	// Withdrawn: the host is to have no address of a frontend.
	Withdrawn bool
	// HostAddresses are the addresses that the host has anyway. IPVS need not make them local.
	HostAddresses []netip.Addr
	// NodeAddresses are those of this node's Node object. APIServers are addresses of API servers.
	NodeAddresses, APIServers []netip.Addr
	// ExternalCIDRs are the ranges in which IPVS may serve external and load balancer IPs.
	ExternalCIDRs []netip.Prefix
}

// sameAddresses reports whether virtual servers stand at the same addresses in both environments.
func (e *Environment) sameAddresses(o *Environment) bool {
	return slices.Equal(e.NodePortAddresses, o.NodePortAddresses) && slices.Equal(e.HostAddresses, o.HostAddresses) &&
		slices.Equal(e.NodeAddresses, o.NodeAddresses) && slices.Equal(e.APIServers, o.APIServers) &&
		slices.Equal(e.ExternalCIDRs, o.ExternalCIDRs)
}

func (e *Environment) hasAddress(a netip.Addr) bool { return contains(e.HostAddresses, a) }

// contains reports whether a sorted list has an address.
func contains(sorted []netip.Addr, a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(sorted, a, netip.Addr.Compare)
	return found
}

// places lists the addresses at which IPVS serves a frontend.
func (e *Environment) places(p *plan.Port, f *plan.Frontend) []netip.Addr {
	if f.Addr.IsValid() {
		return []netip.Addr{f.Addr}
	}
	return e.nodePortAddresses(family(p.Family), false)
}

// nodePortAddresses lists the addresses of a family at which node ports answer: those of the loopback interface, or the
// others.
func (e *Environment) nodePortAddresses(f program.Family, loopback bool) (out []netip.Addr) {
	for _, a := range e.NodePortAddresses {
		if program.FamilyOf(a) == f && a.IsLoopback() == loopback {
			out = append(out, a)
		}
	}
	return out
}
