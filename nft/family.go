package nft

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// TableName is the name of both tables, "ip verdict" and "ip6 verdict".
const TableName = "verdict"

// Family is an address family, which is also the family of one table. The values are those of the kernel.
type Family uint8

// The two families.
const (
	IPv4 Family = unix.NFPROTO_IPV4
	IPv6 Family = unix.NFPROTO_IPV6
)

// Families lists both families, in the order in which tables are written.
func Families() [2]Family { return [2]Family{IPv4, IPv6} }

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// String is the family's name in nft syntax.
func (f Family) String() string {
	if f == IPv6 {
		return "ip6"
	}
	return "ip"
}

func (f Family) index() int {
	if f == IPv6 {
		return 1
	}
	return 0
}

// families is a set of families.
type families [2]bool

func (s families) has(f Family) bool { return s[f.index()] }

func (s families) any() bool { return s != families{} }

// addrLen is the length of an address in bytes.
func (f Family) addrLen() int {
	if f == IPv6 {
		return 16
	}
	return 4
}
