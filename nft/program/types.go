package program

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// Type is one component of a key or of a map's data.
type Type struct {
	Name  string
	magic uint32 // number of the type in nft's datatype.h
	Bytes int
	print func([]byte) string
}

// The types that the program uses. The numbers are from nft's include/datatype.h. They never change, because kernel
// objects hold them.
var (
	TypeVerdict = Type{Name: "verdict", magic: 1}
	typeInteger = Type{Name: "integer", magic: 4, Bytes: 4, print: printInteger}
	typeIPv4    = Type{Name: "ipv4_addr", magic: 7, Bytes: 4, print: printAddr}
	typeIPv6    = Type{Name: "ipv6_addr", magic: 8, Bytes: 16, print: printAddr}
	TypeProto   = Type{Name: "inet_proto", magic: 12, Bytes: 1, print: printProto}
	TypePort    = Type{Name: "inet_service", magic: 13, Bytes: 2, print: printService}
	typeMark    = Type{Name: "mark", magic: 19, Bytes: 4, print: printMark}
	TypeClassID = Type{Name: "classid", magic: 23, Bytes: 4, print: printClassID}
)

// Padded is the size of a component in a concatenation: whole 32-bit registers.
func (t Type) Padded() int { return (t.Bytes + 3) &^ 3 }

func printAddr(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

func printProto(b []byte) string { return rule.ProtocolName(b[0]) }

func printService(b []byte) string { return strconv.Itoa(int(binary.BigEndian.Uint16(b))) }

func printInteger(b []byte) string {
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10)
}

func printMark(b []byte) string { return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(b)) }

func printClassID(b []byte) string { return rule.NumberText(binary.NativeEndian.Uint32(b)) }

func addrType(f Family) Type {
	if f == IPv6 {
		return typeIPv6
	}
	return typeIPv4
}
