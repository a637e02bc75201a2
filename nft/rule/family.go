package rule

import "golang.org/x/sys/unix"

// Family is an address family, which is also the family of one table. The values are those of the kernel.
type Family uint8

// The two families.
const (
	IPv4 Family = unix.NFPROTO_IPV4
	IPv6 Family = unix.NFPROTO_IPV6
)

// String is the family's name in nft syntax.
func (f Family) String() string {
	if f == IPv6 {
		return "ip6"
	}
	return "ip"
}

func (f Family) Index() int {
	if f == IPv6 {
		return 1
	}
	return 0
}

// AddrLen is the length of an address in bytes.
func (f Family) AddrLen() int {
	if f == IPv6 {
		return 16
	}
	return 4
}

// SourceOffset and DestinationOffset are places in the network header (RFC 791, RFC 8200).
func (f Family) SourceOffset() uint32 {
	if f == IPv6 {
		return 8
	}
	return 12
}

func (f Family) DestinationOffset() uint32 {
	if f == IPv6 {
		return 24
	}
	return 16
}
