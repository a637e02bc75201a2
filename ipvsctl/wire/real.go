package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Service names a virtual server.
type Service struct {
	Addr     netip.Addr
	Port     uint16
	Protocol uint8
}

// Real is a real server.
type Real struct {
	Addr       netip.AddrPort
	Weight     uint16
	Forwarding Forwarding

	// The rest is only read.
	Active, Inactive int    // connections
	Connections      uint64 // that it got since it was added
	Limit            int    // how many connections it may have; 0: there is no limit
}

// Attributes of a virtual server, a real server, and its statistics (include/uapi/linux/ip_vs.h).
const (
	svcFamily   = 1
	svcProtocol = 2
	svcAddr     = 3
	svcPort     = 4

	destAddr      = 1
	destPort      = 2
	destMethod    = 3
	destWeight    = 4
	destLimit     = 5
	destLowLimit  = 6
	destActive    = 7
	destInactive  = 8
	destFamily    = 11
	destStats     = 12
	destTunType   = 13
	destTunPort   = 14
	destTunFlags  = 15
	statsConns    = 1
	methodBits    = 0x7
	cmdAttrServer = 1
	cmdAttrReal   = 2
	typeMask      = 0x3fff // without the flags of an attribute
)

func bigEndian(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

func family(a netip.Addr) []byte {
	if a.Is6() {
		return nl.Uint16Attr(unix.AF_INET6)
	}
	return nl.Uint16Attr(unix.AF_INET)
}

func (s Service) attribute() *nl.RtAttr {
	a := nl.NewRtAttr(cmdAttrServer, nil)
	a.AddRtAttr(svcFamily, family(s.Addr))
	a.AddRtAttr(svcProtocol, nl.Uint16Attr(uint16(s.Protocol)))
	a.AddRtAttr(svcAddr, s.Addr.AsSlice())
	a.AddRtAttr(svcPort, bigEndian(s.Port))
	return a
}

func (r Real) attribute() *nl.RtAttr {
	a := nl.NewRtAttr(cmdAttrReal, nil)
	a.AddRtAttr(destAddr, r.Addr.Addr().AsSlice())
	a.AddRtAttr(destPort, bigEndian(r.Addr.Port()))
	a.AddRtAttr(destMethod, nl.Uint32Attr(uint32(r.Forwarding.Method)))
	a.AddRtAttr(destWeight, nl.Uint32Attr(uint32(r.Weight)))
	a.AddRtAttr(destLimit, nl.Uint32Attr(0)) // the kernel requires both limits
	a.AddRtAttr(destLowLimit, nl.Uint32Attr(0))
	a.AddRtAttr(destFamily, family(r.Addr.Addr()))
	if f := r.Forwarding; f.Method == ByTunnel {
		a.AddRtAttr(destTunType, nl.Uint8Attr(uint8(f.Tunnel)))
		a.AddRtAttr(destTunPort, bigEndian(f.Port))
		a.AddRtAttr(destTunFlags, nl.Uint16Attr(uint16(f.Checksum)))
	}
	return a
}

// parseReal reads the answer to the command that lists real servers.
func parseReal(message []byte) (Real, error) {
	outer, err := attributes(message[min(len(message), nl.SizeofGenlmsg):])
	if err != nil {
		return Real{}, err
	}
	attrs, err := attributes(outer[cmdAttrReal])
	if err != nil {
		return Real{}, err
	}
	r := Real{
		Weight: uint16(number(attrs[destWeight])),
		Active: int(number(attrs[destActive])), Inactive: int(number(attrs[destInactive])), Limit: int(number(attrs[destLimit])),
	}
	r.Forwarding.Method = Method(number(attrs[destMethod]) & methodBits)
	if r.Forwarding.Method == ByTunnel {
		r.Forwarding.Tunnel = Tunnel(number(attrs[destTunType]))
		r.Forwarding.Checksum = Checksum(number(attrs[destTunFlags]))
		r.Forwarding.Port = port(attrs[destTunPort])
	}
	stats, err := attributes(attrs[destStats])
	if err != nil {
		return Real{}, err
	}
	r.Connections = number(stats[statsConns])
	addr, err := address(attrs[destAddr], number(attrs[destFamily]))
	r.Addr = netip.AddrPortFrom(addr, port(attrs[destPort]))
	return r, err
}

// address reads an address. The kernel writes 16 bytes, whatever the family is.
func address(b []byte, family uint64) (netip.Addr, error) {
	size := 4
	if family == unix.AF_INET6 {
		size = 16
	}
	if len(b) < size || family != unix.AF_INET && family != unix.AF_INET6 {
		return netip.Addr{}, fmt.Errorf("real server with an address of %d bytes of family %d", len(b), family)
	}
	addr, _ := netip.AddrFromSlice(b[:size])
	return addr, nil
}

var errCut = errors.New("message of the kernel is cut short")

// attributes has the values of attributes by their types.
func attributes(b []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, errors.Join(errCut, err)
	}
	values := make(map[uint16][]byte, len(list))
	for i := range list {
		values[list[i].Attr.Type&typeMask] = list[i].Value
	}
	return values, nil
}

// number reads a number of any size in the byte order of the host. A missing one is 0.
func number(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(nl.NativeEndian().Uint16(b))
	case 4:
		return uint64(nl.NativeEndian().Uint32(b))
	case 8:
		return nl.NativeEndian().Uint64(b)
	}
	return 0
}

// port reads a number in network byte order. A missing one is 0.
func port(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}
