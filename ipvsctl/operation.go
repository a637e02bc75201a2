package ipvsctl

import (
	"fmt"
	"net/netip"
	"strings"
)

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

// Operation is one netlink message.
type Operation struct {
	Kind   OperationKind
	Server *VirtualServer // without its real servers: Server.RealServers has no meaning here
	Real   RealServer     // for AddReal, EditReal and DeleteReal
}

// String returns the command with which ipvsadm or ip does the same.
func (o Operation) String() string {
	switch o.Kind {
	case AddServer:
		return "ipvsadm -A " + o.Server.option() + o.Server.header().options()
	case EditServer:
		return "ipvsadm -E " + o.Server.option() + o.Server.header().options()
	case DeleteServer:
		return "ipvsadm -D " + o.Server.option()
	case AddReal:
		return fmt.Sprintf("ipvsadm -a %s %s", o.Server.option(), o.Real.options())
	case EditReal:
		return fmt.Sprintf("ipvsadm -e %s %s", o.Server.option(), o.Real.options())
	case DeleteReal:
		return fmt.Sprintf("ipvsadm -d %s -r %s", o.Server.option(), o.Real.Addr)
	case AddAddress:
		return routeCommand("add", o.Server.Addr)
	case DeleteAddress:
		return routeCommand("del", o.Server.Addr)
	}
	return o.Kind.String()
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

func routeCommand(verb string, addr netip.Addr) string {
	family := ""
	if addr.Is6() {
		family = "-6 "
	}
	return fmt.Sprintf("ip %sroute %s local %s dev lo table local proto %d metric %d",
		family, verb, addr, routeProtocol, routePriority)
}

// option returns the option of ipvsadm that names the virtual server.
func (k Key) option() string {
	option := "-t"
	switch k.Protocol {
	case UDP:
		option = "-u"
	case SCTP:
		option = "--sctp-service"
	}
	return fmt.Sprintf("%s %s", option, netip.AddrPortFrom(k.Addr, k.Port))
}

// options returns the options of ipvsadm that make the header.
func (h header) options() string {
	text := " -s " + h.scheduler
	if h.persistence > 0 {
		text += fmt.Sprintf(" -p %d", h.persistence)
	}
	if flags := h.flags.text(h.scheduler); flags != "" {
		text += " -b " + flags
	}
	return text
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
