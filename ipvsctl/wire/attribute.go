package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const typeMask = 0x3fff // without the flags of an attribute

func bigEndian(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

func family(a netip.Addr) []byte {
	if a.Is6() {
		return nl.Uint16Attr(unix.AF_INET6)
	}
	return nl.Uint16Attr(unix.AF_INET)
}

// address reads an address. The kernel writes 16 bytes, whatever the family is.
func address(b []byte, family uint64) (netip.Addr, error) {
	size := 4
	if family == unix.AF_INET6 {
		size = 16
	}
	if len(b) < size || family != unix.AF_INET && family != unix.AF_INET6 {
		return netip.Addr{}, fmt.Errorf("an address of %d bytes of family %d", len(b), family)
	}
	addr, _ := netip.AddrFromSlice(b[:size])
	return addr, nil
}

var errCut = errors.New("message of the kernel is cut short")

// inner has the attributes within the outer attribute of a message.
func inner(message []byte, kind uint16) (map[uint16][]byte, error) {
	outer, err := attributes(message[min(len(message), nl.SizeofGenlmsg):])
	if err != nil {
		return nil, err
	}
	return attributes(outer[kind])
}

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
