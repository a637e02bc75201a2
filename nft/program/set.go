package program

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/rule"
)

// Set declares a set (no data) or a map.
type Set struct {
	Name     string
	Says     Says // about the frontends that are its keys
	Key      []Type
	Data     []Type
	typeof   *Typeof // the declaration names expressions instead of types
	Counter  bool    // each element counts its packets
	Rate     uint64  // how many look-ups of an element hit in a second; after a pause, four times as many; 0: all of them
	Interval bool    // the key is a range of addresses
	// Ports is set if the last component of the key is a range of ports. The key of an element is then twice as long: the
	// key with the first port, and the key with the last one.
	Ports   bool
	Dynamic bool   // rules add elements, with timeouts
	Size    uint32 // of a dynamic set: the largest number of elements
}

// Typeof declares key and data by expressions. A component of a key can be an integer only in this way.
type Typeof struct {
	key, data []typeofExpr
	text      string
}

func (d *Set) IsMap() bool { return len(d.Data) > 0 }

// Flags are the kernel's NFT_SET_* bits.
func (d *Set) Flags() uint32 {
	var flags uint32
	if d.IsMap() {
		flags |= unix.NFT_SET_MAP
	}
	if d.Interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	if d.Ports {
		flags |= unix.NFT_SET_INTERVAL | setConcat
	}
	if d.Rate > 0 {
		flags |= setOfExprs
	}
	if d.Dynamic {
		flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	return flags
}

// NFT_SET_CONCAT (kernel 5.6) and NFT_SET_EXPR (5.11), which x/sys does not have.
const (
	setConcat  = 0x80
	setOfExprs = 0x100
)

func KeyType(types []Type) uint32 {
	var m uint32
	for _, t := range types {
		m = m<<6 | t.magic
	}
	return m
}

func KeyLength(types []Type) int {
	if len(types) == 1 {
		return types[0].Bytes
	}
	n := 0
	for _, t := range types {
		n += t.Padded()
	}
	return n
}

func concatText(types []Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.Name
	}
	return strings.Join(names, " . ")
}

// Declaration is the body of the set in nft syntax, without elements.
func (d *Set) Declaration() []string {
	var lines []string
	if d.typeof != nil {
		lines = append(lines, "typeof "+d.typeof.text)
	} else {
		line := "type " + concatText(d.Key)
		if d.IsMap() {
			line += " : " + concatText(d.Data)
		}
		lines = append(lines, line)
	}
	switch {
	case d.Dynamic:
		lines = append(lines, fmt.Sprintf("size %d", d.Size), "flags dynamic,timeout")
	case d.Interval || d.Ports:
		lines = append(lines, "flags interval")
	}
	var each []string
	if d.Rate > 0 {
		each = append(each, fmt.Sprintf("limit rate %d/second burst %d packets", d.Rate, d.Burst()))
	}
	if d.Counter {
		each = append(each, "counter")
	}
	if each != nil {
		lines = append(lines, strings.Join(each, " "))
	}
	return lines
}

// Burst is how many look-ups of an element hit at once.
func (d *Set) Burst() uint32 { return 4 * uint32(d.Rate) }

// MapData is the type and length of a map's data, as the kernel numbers them.
func (d *Set) MapData() (kind, length uint32) {
	if d.LeadsToChains() {
		return unix.NFT_DATA_VERDICT, 16 // sizeof(struct nft_verdict)
	}
	return KeyType(d.Data), uint32(KeyLength(d.Data))
}

// LeadsToChains reports whether the elements of a map are verdicts.
func (d *Set) LeadsToChains() bool { return d.IsMap() && d.Data[0].Name == TypeVerdict.Name }

// SetShape is what cannot be changed about a set.
type SetShape struct {
	Flags, KeyType, KeyLen, DataType, DataLen uint32

	Counter  bool
	Rate     uint64
	UserData string // from which nft makes its listing
	Tuning
}

// Tuning is what can be changed about a set that exists (Linux 6.5 and newer).
type Tuning struct {
	Size       uint32 // the largest number of elements; 0: no limit
	Timeout    uint64 // of elements without one of their own, in milliseconds; 0: none
	GcInterval uint32 // between two searches for elements that have expired, in milliseconds; 0: the kernel chooses
}

func (d *Set) Shape() SetShape {
	s := SetShape{
		Flags: d.Flags(), KeyType: KeyType(d.Key), KeyLen: uint32(KeyLength(d.Key)),
		Counter: d.Counter, Rate: d.Rate, UserData: string(d.UserData()), Tuning: Tuning{Size: d.Size},
	}
	if d.IsMap() {
		s.DataType, s.DataLen = d.MapData()
	}
	return s
}

// IsCounted reports whether the kernel's count of the elements can be compared. Linux before 6.16 does not count. Of sets
// of ranges, it counts the ranges, and not their ends. Into dynamic sets, rules write.
func (d *Set) IsCounted() bool { return !d.Dynamic && !d.Interval }

// nft keeps user data in kernel objects, for its own listings: comments, byte orders, and the expressions that a set
// was declared with. This file writes the form of nft 1.0.6, which newer versions read, too. (The form of nft 1.1 makes
// 1.0.6 crash.) The numbers are from libnftnl's udata.h and nft's expression.h.

const (
	byteOrderUnknown uint32 = 0
	byteOrderHost    uint32 = 1
	byteOrderBig     uint32 = 2

	etypePayload uint32 = 7
	etypeMeta    uint32 = 9
	etypeConcat  uint32 = 13
	etypeNumgen  uint32 = 23

	// Parts of a "typeof" value: the kind of the expression, and its description.
	typeofKind userdata.Type = 0
	typeofBody userdata.Type = 1

	protoDescTransport uint32 = 11
	protoDescIPv4      uint32 = 12
	protoDescIPv6      uint32 = 13
)

// typeofExpr is an expression in nft's own serialization.
type typeofExpr []byte

func newTypeof(kind uint32, body []byte) typeofExpr {
	return userdata.Append(userdata.AppendUint32(nil, typeofKind, kind), typeofBody, body)
}

func typeofPriority() typeofExpr {
	const metaPriority = 2
	return newTypeof(etypeMeta, userdata.AppendUint32(nil, 0, metaPriority))
}

func typeofNumgen() typeofExpr {
	body := userdata.AppendUint32(nil, 0, 1)        // random
	body = userdata.AppendUint32(body, 1, MaxSlots) // modulus
	return newTypeof(etypeNumgen, userdata.AppendUint32(body, 2, 0))
}

func typeofHeader(desc, fieldNumber uint32) typeofExpr {
	return newTypeof(etypePayload, userdata.AppendUint32(userdata.AppendUint32(nil, 0, desc), 1, fieldNumber))
}

func typeofDport() typeofExpr { return typeofHeader(protoDescTransport, 2) }

func typeofDaddr(f Family) typeofExpr {
	return rule.Choose(f, typeofHeader(protoDescIPv4, 12), typeofHeader(protoDescIPv6, 9))
}

// typeofList serializes one expression, or a concatenation of several.
func typeofList(list []typeofExpr) []byte {
	if len(list) == 1 {
		return list[0]
	}
	var inner []byte
	for i, e := range list {
		inner = userdata.Append(inner, userdata.Type(i), e)
	}
	return newTypeof(etypeConcat, inner)
}

// UserData is the user data of the set. nft notes the byte order of single values only; a concatenation has none.
func (d *Set) UserData() []byte {
	out := userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, byteOrder(d.Key))
	if d.IsMap() {
		out = userdata.AppendUint32(out, userdata.NFTNL_UDATA_SET_DATABYTEORDER, byteOrder(d.Data))
	}
	var key, data []typeofExpr
	if d.typeof != nil {
		key, data = d.typeof.key, d.typeof.data
	}
	out = appendTypeof(out, userdata.NFTNL_UDATA_SET_KEY_TYPEOF, d.Key, key)
	out = appendTypeof(out, userdata.NFTNL_UDATA_SET_DATA_TYPEOF, d.Data, data)
	if d.IsMap() {
		out = userdata.AppendUint32(out, userdata.NFTNL_UDATA_SET_DATA_INTERVAL, 0) // the data are not ranges
	}
	return out
}

// appendTypeof writes the expressions of a key or of data. For several plain types, nft writes an empty concatenation.
func appendTypeof(out []byte, attr userdata.Type, types []Type, exprs []typeofExpr) []byte {
	switch {
	case exprs != nil:
		return userdata.Append(out, attr, typeofList(exprs))
	case len(types) > 1:
		return userdata.Append(out, attr, newTypeof(etypeConcat, nil))
	}
	return out
}

func byteOrder(types []Type) uint32 {
	if len(types) > 1 {
		return byteOrderUnknown
	}
	switch types[0].Name {
	case TypeClassID.Name, typeIfname.Name:
		return byteOrderHost
	case typeIPv4.Name, typeIPv6.Name, TypePort.Name:
		return byteOrderBig
	}
	return byteOrderUnknown
}

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
	typeInteger = Type{Name: "integer", magic: 4, Bytes: 4, print: func(b []byte) string { return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10) }}
	typeIPv4    = Type{Name: "ipv4_addr", magic: 7, Bytes: 4, print: printAddr}
	typeIPv6    = Type{Name: "ipv6_addr", magic: 8, Bytes: 16, print: printAddr}
	TypeProto   = Type{Name: "inet_proto", magic: 12, Bytes: 1, print: func(b []byte) string { return rule.ProtocolName(b[0]) }}
	TypePort    = Type{Name: "inet_service", magic: 13, Bytes: 2, print: func(b []byte) string { return strconv.Itoa(int(binary.BigEndian.Uint16(b))) }}
	typeMark    = Type{Name: "mark", magic: 19, Bytes: 4, print: func(b []byte) string { return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(b)) }}
	typeIfname  = Type{Name: "ifname", magic: 41, Bytes: unix.IFNAMSIZ, print: func(b []byte) string { return strconv.Quote(unix.ByteSliceToString(b)) }}
	TypeClassID = Type{Name: "classid", magic: 23, Bytes: 4, print: func(b []byte) string { return rule.NumberText(binary.NativeEndian.Uint32(b)) }}
)

// Padded is the size of a component in a concatenation: whole 32-bit registers.
func (t Type) Padded() int { return (t.Bytes + 3) &^ 3 }

func printAddr(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}
