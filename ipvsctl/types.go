package ipvsctl

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols that Services have and IPVS can balance.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// Key identifies a virtual server. A network namespace has at most one virtual server with a key, whichever tool made
// it.
type Key struct {
	Addr     netip.Addr
	Port     uint16
	Protocol Protocol
}

func (k Key) String() string {
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.Addr, k.Port), k.Protocol)
}

func (k Key) compare(o Key) int {
	return cmp.Or(k.Addr.Compare(o.Addr), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Protocol, o.Protocol))
}

// VirtualServer is one frontend together with the real servers behind it.
type VirtualServer struct {
	Key
	// Local makes the engine add a local route to the address, so that packets to it reach IPVS. It is false for
	// addresses that the host has anyway (node ports).
	Local     bool
	Scheduler string
	Flags     Flags
	// Persistence is how long a client stays with its real server. 0 means that it does not stay. The kernel counts
	// whole seconds.
	Persistence time.Duration
	RealServers []RealServer
}

// RealServer is one endpoint. A real server of weight 0 gets no new connections.
type RealServer struct {
	Addr   netip.AddrPort
	Weight uint16
	// Forwarding is how packets reach it. Without NAT they keep the address and port of the virtual server, and the
	// answers do not come back to this host.
	Forwarding wire.Forwarding
}

func (r RealServer) compare(o RealServer) int { return r.Addr.Compare(o.Addr) }

// options returns the options of ipvsadm that make the real server.
func (r RealServer) options() string {
	return fmt.Sprintf("-r %s %s -w %d", r.Addr, r.Forwarding.Options(), r.Weight)
}

func (r RealServer) real() wire.Real {
	return wire.Real{Addr: r.Addr, Weight: r.Weight, Forwarding: r.Forwarding}
}

// RealStatus is a real server that the kernel has. It has weight 0 while it drains, or because Set said so.
type RealStatus struct {
	RealServer
	Active, Inactive int    // connections
	Connections      uint64 // that it got since it was added
	// Limit is how many connections it may have; 0: there is no limit. Verdict sets none, but other tools can (ipvsadm -x).
	Limit int
}

func foundReal(r wire.Real) RealStatus {
	return RealStatus{
		RealServer: RealServer{Addr: r.Addr, Weight: r.Weight, Forwarding: r.Forwarding},
		Active:     r.Active, Inactive: r.Inactive, Connections: r.Connections, Limit: r.Limit,
	}
}

// Options returns the options of ipvsadm that make the real server, beside those that each one has.
func (r *RealStatus) Options() string {
	text := ""
	if r.Forwarding != (wire.Forwarding{}) {
		text = r.Forwarding.Options()
	}
	if r.Limit > 0 {
		text += fmt.Sprintf(" -x %d", r.Limit)
	}
	return strings.TrimSpace(text)
}

// Full reports whether IPVS gives it no new connections, because it has as many as its limit allows.
func (r *RealStatus) Full() bool { return r.Limit > 0 && r.Active+r.Inactive >= r.Limit }

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
	case v.Flags&^allFlags != 0:
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

// canDrain reports whether a scheduler skips real servers of weight 0. The hash table of dh ignores weights: it still
// selects them, and the kernel then refuses every client of the virtual server.
func canDrain(scheduler string) bool { return scheduler != "dh" }

// usable returns the real servers that the kernel may get, sorted by address. It returns the list of v itself when that
// needs no change, which is what the planner usually provides.
func (v *VirtualServer) usable() []RealServer {
	list := sorted(v.RealServers)
	idle := func(r RealServer) bool { return r.Weight == 0 }
	if !canDrain(v.Scheduler) && slices.ContainsFunc(list, idle) {
		list = slices.DeleteFunc(slices.Clone(list), idle)
	}
	return list
}

// sorted returns the real servers sorted by address: the list itself when it is sorted already, otherwise a copy.
func sorted(list []RealServer) []RealServer {
	if slices.IsSortedFunc(list, RealServer.compare) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, RealServer.compare)
	return list
}

// header is what the kernel knows of a virtual server besides its key and its real servers.
type header struct {
	scheduler   string
	flags       Flags
	persistence uint32 // seconds
}

func (v *VirtualServer) header() header {
	return header{scheduler: v.Scheduler, flags: v.kernelFlags(), persistence: seconds(v.Persistence)}
}

// kernelFlags adds Fallback for sh and mh. Their hash tables still select real servers of weight 0, and without
// Fallback the kernel refuses those clients for as long as the endpoint drains.
func (v *VirtualServer) kernelFlags() Flags {
	if flagNames(v.Scheduler) != nil {
		return v.Flags | Fallback
	}
	return v.Flags
}

// seconds rounds up, so that a client does not lose its real server too early.
func seconds(d time.Duration) uint32 { return uint32((d + time.Second - 1) / time.Second) }
