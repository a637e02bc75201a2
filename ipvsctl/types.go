package ipvsctl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// The values that package wire exchanges with the kernel.
type (
	Key        = wire.Key
	Protocol   = wire.Protocol
	RealServer = wire.RealServer
	RealStatus = wire.RealStatus
	Timeouts   = wire.Timeouts
)

// The protocols that Services have and IPVS can balance.
const (
	TCP  = wire.TCP
	UDP  = wire.UDP
	SCTP = wire.SCTP
)

// Schedulers lists the schedulers of Linux up to 6.18. Probe finds out which of them the running kernel has.
func Schedulers() []string {
	return []string{"rr", "wrr", "lc", "wlc", "sed", "nq", "lblc", "lblcr", "dh", "fo", "ovf", "twos", "sh", "mh"}
}

// Module returns the kernel module of a scheduler.
func Module(scheduler string) string { return "ip_vs_" + scheduler }

// Options configure an engine.
type Options struct {
	// NetNS is a file descriptor of the network namespace to work in. 0 means the current one. It must stay open as long
	// as the engine is used.
	NetNS int
	// Exclude lists address ranges that belong to other users of IPVS. The engine makes nothing there. It still takes
	// over what an earlier process left there, so that the addresses keep their guards until they are no longer
	// local.
	Exclude []netip.Prefix
	// GracefulPeriod is how long a real server that is no longer wanted may keep its connections. 0 means not at all.
	GracefulPeriod time.Duration
	// Sync are the synchronization daemons that run. Those that an earlier process started and that are not among them end.
	Sync []wire.Daemon
}

// excludes reports whether an address belongs to other users of IPVS.
func (o *Options) excludes(addr netip.Addr) bool {
	return slices.ContainsFunc(o.Exclude, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func (o *Options) graceful() bool { return o.GracefulPeriod > 0 }

// VirtualServer is one frontend together with the real servers behind it.
type VirtualServer struct {
	Key
	// Local makes the engine add a local route to the address, so that packets to it reach IPVS. It is false for
	// addresses that the host has anyway (node ports).
	Local     bool
	Scheduler string
	Flags     wire.Flags
	// Persistence is how long a client stays with its real server. 0 means that it does not stay. The kernel counts
	// whole seconds.
	Persistence time.Duration
	RealServers []RealServer
}

func (v *VirtualServer) header() wire.Header {
	return wire.Header{Scheduler: v.Scheduler, Flags: v.kernelFlags(), Persistence: wire.Seconds(v.Persistence)}
}

// kernelFlags adds Fallback for sh and mh. Their hash tables still select real servers of weight 0, and without
// Fallback the kernel refuses those clients for as long as the endpoint drains.
func (v *VirtualServer) kernelFlags() wire.Flags {
	if wire.FlagNames(v.Scheduler) != nil {
		return v.Flags | wire.Fallback
	}
	return v.Flags
}

// OperationKind is what an operation does.
type OperationKind uint8

// The kinds of operations.
const (
	AddServer OperationKind = iota
	EditServer
	DeleteServer
	AddReal
	EditReal
	DeleteReal
	AddAddress
	DeleteAddress
)

// kinds has the name of each kind, the option of ipvsadm or the verb of ip that does it, and the command of IPVS.
func kinds() []kind {
	return []kind{
		AddServer:     {"add virtual server", "-A", wire.AddServer},
		EditServer:    {"change virtual server", "-E", wire.EditServer},
		DeleteServer:  {"delete virtual server", "-D", wire.DeleteServer},
		AddReal:       {"add real server", "-a", wire.AddReal},
		EditReal:      {"change real server", "-e", wire.EditReal},
		DeleteReal:    {"delete real server", "-d", wire.DeleteReal},
		AddAddress:    {"add local route", "add", 0},
		DeleteAddress: {"delete local route", "del", 0},
	}
}

type kind struct {
	name, does string
	command    wire.Command
}

func (k OperationKind) String() string { return kinds()[k].name }

// Operation is one netlink message.
type Operation struct {
	Kind   OperationKind
	Server *VirtualServer // without its real servers: Server.RealServers has no meaning here
	Real   RealServer     // for AddReal, EditReal and DeleteReal
}

// String returns the command with which ipvsadm or ip does the same.
func (o Operation) String() string {
	does := kinds()[o.Kind].does
	command := fmt.Sprintf("ipvsadm %s %s", does, o.Server.Option())
	switch o.Kind {
	case AddServer, EditServer:
		return command + o.Server.header().Options()
	case AddReal, EditReal:
		return command + " " + o.Real.Options()
	case DeleteReal:
		return fmt.Sprintf("%s -r %s", command, o.Real.Addr)
	case AddAddress, DeleteAddress:
		return routeCommand(does, o.Server.Addr)
	}
	return command
}

// object names, for errors, what the operation changes.
func (o Operation) object() string {
	switch o.Kind {
	case AddReal, EditReal, DeleteReal:
		return fmt.Sprintf("%s of %s", o.Real.Addr, o.Server.Key)
	case AddAddress, DeleteAddress:
		return o.Server.Addr.String()
	}
	return o.Server.String()
}

// routeProtocol marks the local routes of this package ("ip route show table local proto 118"). Neither the kernel's
// rtnetlink.h nor iproute2's rt_protos assigns it.
const routeProtocol = 118

// routePriority differs from 0, the priority of the routes that the kernel makes for the addresses of links. So a
// frontend may have an address of the host: both routes exist side by side.
const routePriority = 1024

func routeCommand(verb string, addr netip.Addr) string {
	family := ""
	if addr.Is6() {
		family = "-6 "
	}
	return fmt.Sprintf("ip %sroute %s local %s dev lo table local proto %d metric %d",
		family, verb, addr, routeProtocol, routePriority)
}

// Operations are listed in the order in which the kernel gets them.
type Operations []Operation

// String returns one command per line.
func (list Operations) String() string {
	var b strings.Builder
	for _, o := range list {
		b.WriteString(o.String())
		b.WriteByte('\n')
	}
	return b.String()
}
