package dataplane

import (
	"net/netip"
	"path"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
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
	// FastPathDevices are patterns of the names of devices whose packets take the fast path; empty: all but ports of others.
	FastPathDevices []string
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
	return e.nodePortAddresses(p.Family, false)
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

// fastPathDevices lists the devices that the fast path is to have. A port of a bridge has none of its own: the packets that it carries
// to this host are the bridge's, and others may move from port to port.
func (e *Environment) fastPathDevices(devices []state.Device) (names []string) {
	for _, d := range devices {
		matches := func(pattern string) bool { ok, _ := path.Match(pattern, d.Name); return ok }
		if slices.ContainsFunc(e.FastPathDevices, matches) || len(e.FastPathDevices) == 0 && !d.Port {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Addresses are those of frontends that Verdict has on a device. addresses.Engine documents the methods.
type Addresses interface {
	Set(state.Name, []netip.Addr)
	Withdraw(bool)
	Missing(a netip.Addr, why string) string
	Changed() []state.Name
	Remove() []Failure
	Add() []Failure
	Tick(now time.Time) []Failure
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
			if f := &p.Frontends[j]; fromOutside(f) && f.Good && f.Refusal == serviceport.NoRefusal {
				list = append(list, f.Addr)
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// missing lists the addresses for clients outside that this host does not have, with their reasons; some of them twice.
func (d *Dataplane) missing(planned *plan.Service, wanted []netip.Addr) (problems []state.Problem) {
	for i := range planned.Ports {
		for j := range planned.Ports[i].Frontends {
			f, why := &planned.Ports[i].Frontends[j], ""
			p := state.Problem{Kind: "Service", Object: planned.Name, Field: f.Kind.Field()}
			if !slices.Contains(wanted, f.Addr) {
				p.Field, why = state.FieldEndpoints, "none of its ports has a good endpoint here"
			}
			if p.Reason = d.addresses.Missing(f.Addr, why); p.Reason != "" && fromOutside(f) {
				problems = append(problems, p)
			}
		}
	}
	return problems
}

// fromOutside reports whether a frontend may be served without NAT. Endpoints do not have the cluster IP, where their own
// kind are the clients, and a node port is never the port of an endpoint.
func fromOutside(f *plan.Frontend) bool {
	return f.Kind == plan.ExternalIP || f.Kind == plan.LoadBalancer
}
