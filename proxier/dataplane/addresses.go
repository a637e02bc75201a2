package dataplane

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/addresses"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Addresses are those of frontends that Verdict has on a device. addresses.Engine documents the methods.
type Addresses interface {
	Set(state.Name, []netip.Addr)
	Withdraw(bool)
	Remove() []addresses.Failure
	Add() []addresses.Failure
	Tick(now time.Time) []addresses.Failure
}

// addressesOf lists the addresses of a Service that this host is to have: those for clients outside at which a good endpoint
// answers at some port. A port that the kernel refused answers nobody.
func addressesOf(planned *plan.Service, refused quarantine) (list []netip.Addr) {
	for i := range planned.Ports {
		p := &planned.Ports[i]
		if refused.holds(idOf(p)) {
			continue
		}
		for j := range p.Frontends {
			if f := &p.Frontends[j]; fromOutside(f) && f.Good && f.Unserved == plan.Served {
				list = append(list, f.Addr)
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

func failuresOf(list []addresses.Failure) (out []Failure) {
	for _, f := range list {
		out = append(out, Failure{Object: f.What, Err: f.Err, Next: f.Next})
	}
	return out
}
