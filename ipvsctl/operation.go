package ipvsctl

import (
	"fmt"
	"net/netip"
	"strings"
)

// OperationKind says what an operation does.
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

func (k OperationKind) String() string {
	switch k {
	case AddServer:
		return "add virtual server"
	case EditServer:
		return "change virtual server"
	case DeleteServer:
		return "delete virtual server"
	case AddReal:
		return "add real server"
	case EditReal:
		return "change real server"
	case DeleteReal:
		return "delete real server"
	case AddAddress:
		return "add local route"
	case DeleteAddress:
		return "delete local route"
	}
	return "unknown operation"
}

// Operation is one step: one netlink message.
type Operation struct {
	Kind   OperationKind
	Server *VirtualServer // its real servers say nothing here
	Real   RealServer     // for the kinds that deal with one
}

// String is the command with which ipvsadm, or ip, does the same.
func (o Operation) String() string {
	switch o.Kind {
	case AddServer:
		return "ipvsadm -A " + o.Server.options()
	case EditServer:
		return "ipvsadm -E " + o.Server.options()
	case DeleteServer:
		return "ipvsadm -D " + o.Server.service()
	case AddReal:
		return fmt.Sprintf("ipvsadm -a %s -r %s -m -w %d", o.Server.service(), o.Real.Addr, o.Real.Weight)
	case EditReal:
		return fmt.Sprintf("ipvsadm -e %s -r %s -m -w %d", o.Server.service(), o.Real.Addr, o.Real.Weight)
	case DeleteReal:
		return fmt.Sprintf("ipvsadm -d %s -r %s", o.Server.service(), o.Real.Addr)
	case AddAddress:
		return routeCommand("add", o.Server.Addr)
	case DeleteAddress:
		return routeCommand("del", o.Server.Addr)
	}
	return o.Kind.String()
}

// object names what the operation deals with, for errors.
func (o Operation) object() string {
	switch o.Kind {
	case AddReal, EditReal, DeleteReal:
		return fmt.Sprintf("%s of %s", o.Real.Addr, o.Server.Key)
	case AddAddress, DeleteAddress:
		return o.Server.Addr.String()
	}
	return o.Server.String()
}

func routeCommand(verb string, addr netip.Addr) string {
	family := ""
	if addr.Is6() {
		family = "-6 "
	}
	return fmt.Sprintf("ip %sroute %s local %s dev lo table local proto %d metric %d", family, verb, addr, routeProtocol, routePriority)
}

// service is how ipvsadm names the virtual server.
func (v *VirtualServer) service() string {
	option := "-t"
	switch v.Protocol {
	case UDP:
		option = "-u"
	case SCTP:
		option = "--sctp-service"
	}
	return fmt.Sprintf("%s %s", option, netip.AddrPortFrom(v.Addr, v.Port))
}

func (v *VirtualServer) options() string {
	text := v.service() + " -s " + v.Scheduler
	if p := seconds(v.Persistence); p > 0 {
		text += fmt.Sprintf(" -p %d", p)
	}
	if flags := v.kernelFlags().text(v.Scheduler); flags != "" {
		text += " -b " + flags
	}
	return text
}

// Operations are steps in the order in which they are taken.
type Operations []Operation

// String prints one command in each line.
func (list Operations) String() string {
	var b strings.Builder
	for _, o := range list {
		b.WriteString(o.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Build returns the operations that make virtual servers out of nothing, in the order given.
func Build(servers []VirtualServer) Operations {
	var list Operations
	local := map[netip.Addr]bool{}
	for i := range servers {
		v := servers[i]
		v.RealServers = v.serving()
		list = append(list, additions(&applied{}, &v, true)...)
		if v.Local && !local[v.Addr] {
			local[v.Addr] = true
			list = append(list, Operation{Kind: AddAddress, Server: &v})
		}
	}
	return list
}
