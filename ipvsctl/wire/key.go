package wire

import (
	"cmp"
	"fmt"
	"net/netip"
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

// Compare orders keys by address, port and protocol.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.Addr.Compare(o.Addr), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Protocol, o.Protocol))
}

// Option returns the option of ipvsadm that names the virtual server.
func (k Key) Option() string {
	option := "-t"
	switch k.Protocol {
	case UDP:
		option = "-u"
	case SCTP:
		option = "--sctp-service"
	}
	return fmt.Sprintf("%s %s", option, netip.AddrPortFrom(k.Addr, k.Port))
}
