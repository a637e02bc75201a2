package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// dataType is one component of a key or of a map's data.
type dataType struct {
	name  string
	magic uint32 // number of the type in nft's datatype.h
	bytes int
	// host is set if nft keeps the value in host byte order. The user data of the set say so.
	host  bool
	print func([]byte) string
}

// The types that the program uses. The numbers are from nft's include/datatype.h. They never change, because kernel
// objects hold them.
var (
	typeVerdict = dataType{name: "verdict", magic: 1}
	typeInteger = dataType{name: "integer", magic: 4, bytes: 4, host: true, print: printInteger}
	typeIPv4    = dataType{name: "ipv4_addr", magic: 7, bytes: 4, print: printAddr}
	typeIPv6    = dataType{name: "ipv6_addr", magic: 8, bytes: 16, print: printAddr}
	typeProto   = dataType{name: "inet_proto", magic: 12, bytes: 1, print: printProto}
	typeService = dataType{name: "inet_service", magic: 13, bytes: 2, print: printService}
	typeMark    = dataType{name: "mark", magic: 19, bytes: 4, host: true, print: printMark}
	typeClassID = dataType{name: "classid", magic: 23, bytes: 4, host: true, print: printClassID}
)

// padded is the size of a component in a concatenation: whole 32-bit registers.
func (t dataType) padded() int { return (t.bytes + 3) &^ 3 }

func printAddr(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

func printProto(b []byte) string {
	switch b[0] {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(b[0]))
}

func printService(b []byte) string { return strconv.Itoa(int(binary.BigEndian.Uint16(b))) }

func printInteger(b []byte) string {
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10)
}

func printMark(b []byte) string { return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(b)) }

func printClassID(b []byte) string { return classID(binary.NativeEndian.Uint32(b)) }

// classID prints a number as nft prints a traffic-control handle: major and minor half in hexadecimal.
func classID(v uint32) string {
	switch v {
	case 0:
		return "none"
	case 0xffffffff:
		return "root"
	}
	return fmt.Sprintf("%x:%x", v>>16, v&0xffff)
}
