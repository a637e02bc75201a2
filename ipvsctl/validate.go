package ipvsctl

import (
	"fmt"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// prepare validates the values and returns copies with sorted real servers.
func (o *Options) prepare(servers []VirtualServer) ([]*VirtualServer, error) {
	wanted := make([]*VirtualServer, len(servers))
	for i := range servers {
		v := servers[i]
		v.RealServers = v.usable()
		if err := v.validate(); err != nil {
			return nil, err
		}
		if o.excludes(v.Addr) {
			return nil, &KeyError{Key: v.Key, Err: ErrExcluded}
		}
		if slices.ContainsFunc(wanted[:i], func(w *VirtualServer) bool { return w.Key == v.Key }) {
			return nil, fmt.Errorf("virtual server %s is given twice", v.Key)
		}
		wanted[i] = &v
	}
	return wanted, nil
}

// maxSchedulerName is IP_VS_SCHEDNAME_MAXLEN without the terminating zero.
const maxSchedulerName = 15

// maxPersistence fits into the kernel's count of jiffies (signed 32 bits at 1000 Hz).
const maxPersistence = 24 * 24 * time.Hour

// validate rejects values that the kernel or moby/ipvs would accept and change.
func (v *VirtualServer) validate() error {
	switch {
	case !v.Addr.IsValid() || v.Addr.IsUnspecified() || v.Addr.Zone() != "" || v.Addr.Is4In6():
		return fmt.Errorf("virtual server %s: not an address that IPVS can serve", v.Key)
	case v.Port == 0:
		// To IPVS, port 0 means every port, and only with persistence.
		return fmt.Errorf("virtual server %s: no port", v.Key)
	case v.Protocol != TCP && v.Protocol != UDP && v.Protocol != SCTP:
		return fmt.Errorf("virtual server %s: IPVS does not balance this protocol", v.Key)
	case v.Scheduler == "" || len(v.Scheduler) > maxSchedulerName:
		return fmt.Errorf("virtual server %s: %q is not the name of a scheduler", v.Key, v.Scheduler)
	case v.Flags&^wire.AllFlags != 0:
		return fmt.Errorf("virtual server %s: unknown scheduler flags %#x", v.Key, uint32(v.Flags))
	case v.Persistence < 0 || v.Persistence > maxPersistence:
		return fmt.Errorf("virtual server %s: persistence %s is not in 0 to %s", v.Key, v.Persistence, maxPersistence)
	}
	return v.validateRealServers()
}

// validateRealServers expects the real servers in the order of their addresses.
func (v *VirtualServer) validateRealServers() error {
	for i, r := range v.RealServers {
		addr := r.Addr.Addr()
		if addr.BitLen() != v.Addr.BitLen() || addr.Is4In6() || addr.Zone() != "" || r.Addr.Port() == 0 {
			// The kernel cuts an IPv6 address to four bytes when the virtual server is IPv4, and returns no error.
			return fmt.Errorf("virtual server %s: %s cannot be a real server of it", v.Key, r.Addr)
		}
		if r.Forwarding.Method != wire.NAT && r.Addr.Port() != v.Port {
			return fmt.Errorf("virtual server %s: real server %s would get packets for port %d: only NAT changes the port", v.Key, r.Addr, v.Port)
		}
		if i > 0 && v.RealServers[i-1].Addr == r.Addr {
			return fmt.Errorf("virtual server %s: real server %s is given twice", v.Key, r.Addr)
		}
	}
	return nil
}

// usable returns the real servers that the kernel may get, sorted by address. It returns the list of v itself when that
// needs no change, which is what the planner usually provides.
func (v *VirtualServer) usable() []RealServer {
	list := v.RealServers
	if !slices.IsSortedFunc(list, RealServer.Compare) {
		list = slices.SortedFunc(slices.Values(list), RealServer.Compare)
	}
	idle := func(r RealServer) bool { return r.Weight == 0 }
	if !canDrain(v.Scheduler) && slices.ContainsFunc(list, idle) {
		list = slices.DeleteFunc(slices.Clone(list), idle)
	}
	return list
}
