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

// wantAddresses notes which addresses of a Service this host is to have: those for clients outside at which a good endpoint
// answers at some port. A port that the kernel refused answers nobody.
func (d *Dataplane) wantAddresses(planned *plan.Service) {
	if d.addresses == nil {
		return
	}
	var list []netip.Addr
	for i := range planned.Ports {
		p := &planned.Ports[i]
		if d.quarantine.holds(portKey{family(p.Family), p.Name}) {
			continue
		}
		for j := range p.Frontends {
			f := &p.Frontends[j]
			if (f.Kind == plan.ExternalIP || f.Kind == plan.LoadBalancer) && f.Good && f.Unserved == plan.Served {
				list = append(list, f.Addr)
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	d.addresses.Set(planned.Name, slices.Compact(list))
}

// removeAddresses takes addresses off the host that nobody wants any more, before the rules stop serving them.
func (d *Dataplane) removeAddresses() []Failure {
	if d.addresses == nil {
		return nil
	}
	return failuresOf(d.addresses.Remove())
}

// addAddresses gives the host the addresses that the rules serve now.
func (d *Dataplane) addAddresses() []Failure {
	if d.addresses == nil {
		return nil
	}
	return failuresOf(d.addresses.Add())
}

func failuresOf(list []addresses.Failure) (out []Failure) {
	for _, f := range list {
		out = append(out, Failure{Object: f.What, Err: f.Err, Next: f.Next})
	}
	return out
}
