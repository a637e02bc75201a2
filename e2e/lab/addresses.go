package lab

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Family is an address family.
type Family int

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists both.
func Families() []Family { return []Family{IPv4, IPv6} }

func (f Family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Other is the other family.
func (f Family) Other() Family {
	if f == IPv4 {
		return IPv6
	}
	return IPv4
}

// pair is an address or range in both families.
type pair struct{ v4, v6 string }

// addressBook has a name for every address and range of the tests. Scenarios write $NAME.
var addressBook = map[string]pair{
	// The node: the primary address, a second one, the address on the link to the other node, one that tests add.
	"NODE":        {"192.168.7.1", "fd00:7::1"},
	"NODE_SECOND": {"192.168.7.2", "fd00:7::2"},
	"NODE_INNER":  {"192.168.8.1", "fd00:8::1"},
	"SPARE":       {"192.0.2.50", "2001:db8:50::50"},
	"LOCALHOST":   {"127.0.0.1", "::1"},
	"GATEWAY":     {"192.168.7.254", "fd00:7::fe"},
	"REMOTE":      {"192.168.8.2", "fd00:8::2"},
	// Pods: a and b on the node, c and d on the other.
	"A": {"10.0.1.1", "fd00:10:0:1::1"}, "B": {"10.0.1.2", "fd00:10:0:1::2"},
	"C": {"10.0.2.1", "fd00:10:0:2::1"}, "D": {"10.0.2.2", "fd00:10:0:2::2"},
	"POD_GATEWAY": {"10.0.1.254", "fd00:10:0:1::fe"},
	"PODS":        {"10.0.0.0/16", "fd00:10::/48"},
	"NODE_PODS":   {"10.0.1.0/24", "fd00:10:0:1::/64"},
	"REMOTE_PODS": {"10.0.2.0/24", "fd00:10:0:2::/64"},
	// Pod c owns all addresses of this range, for Services with thousands of endpoints.
	"MANY": {"10.0.128.0/18", "fd00:10:0:80::/64"},
	// Clients outside; x owns all addresses of $CROWD.
	"X": {"192.168.7.11", "fd00:7::11"}, "Y": {"192.168.7.12", "fd00:7::12"},
	"CLIENTS": {"192.168.7.0/24", "fd00:7::/64"},
	"CROWD":   {"10.200.0.0/16", "fd00:200::/64"},
	// Addresses of Services. $UNALLOCATED is in the Service range and belongs to no Service.
	"SERVICES": {"10.96.0.0/12", "fd00:10:96::/112"},
	"VIP1":     {"10.96.0.11", "fd00:10:96::11"}, "VIP2": {"10.96.0.12", "fd00:10:96::12"},
	"VIP3": {"10.96.0.13", "fd00:10:96::13"}, "VIP4": {"10.96.0.14", "fd00:10:96::14"},
	"VIP5": {"10.96.0.15", "fd00:10:96::15"}, "FENCE": {"10.96.255.254", "fd00:10:96::fffe"},
	"UNALLOCATED":    {"10.96.200.200", "fd00:10:96::c8c8"},
	"EXTRA_SERVICES": {"172.20.0.0/24", "fd00:172:20::/112"},
	"EXTRA_VIP":      {"172.20.0.9", "fd00:172:20::9"},
	"LB1":            {"203.0.113.1", "2001:db8:203::1"}, "LB2": {"203.0.113.2", "2001:db8:203::2"},
	"LB3":  {"203.0.113.3", "2001:db8:203::3"},
	"EXT1": {"198.51.100.1", "2001:db8:198::1"}, "EXT2": {"198.51.100.2", "2001:db8:198::2"},
	"EVERYWHERE": {"0.0.0.0/0", "::/0"},
	// Addresses that tests give to the node and take away again.
	"PASSING": {"198.18.7.0/24", "2001:db8:187::/64"},
	// An address of no Service and of no host.
	"NOWHERE": {"198.51.100.99", "2001:db8:198::99"},
}

// Text expands a name. NAME is an address or range of the address book; NAME_HOST is the range that holds only this
// address; OTHER_NAME is NAME in the other family; FAMILY is the family's name as in addressType.
func Text(f Family, name string) (string, error) {
	if rest, ok := strings.CutPrefix(name, "OTHER_"); ok {
		return Text(f.Other(), rest)
	}
	if name == "FAMILY" {
		return f.String(), nil
	}
	if host, ok := strings.CutSuffix(name, "_HOST"); ok {
		a, err := Lookup(f, host)
		return netip.PrefixFrom(a, a.BitLen()).String(), err
	}
	p, ok := addressBook[name]
	if !ok {
		return "", fmt.Errorf("no address is called $%s", name)
	}
	if f == IPv4 {
		return p.v4, nil
	}
	return p.v6, nil
}

// Lookup finds an address by its name.
func Lookup(f Family, name string) (netip.Addr, error) {
	text, err := Text(f, name)
	if err != nil {
		return netip.Addr{}, err
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("$%s is not one address: %w", name, err)
	}
	return a, nil
}

// Address is the address of a name that stands in the code of a test.
func Address(f Family, name string) netip.Addr {
	a, err := Lookup(f, name)
	if err != nil {
		panic(err) // the address book or the code is wrong
	}
	return a
}

// AddressPort is that address with a port.
func AddressPort(f Family, name string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(Address(f, name), port)
}

// MustText is the text of a name that stands in the code of a test.
func MustText(f Family, name string) string {
	text, err := Text(f, name)
	if err != nil {
		panic(err) // the address book or the code is wrong
	}
	return text
}

// Both lists the address or range of that name in both families.
func Both(name string) []string { return []string{MustText(IPv4, name), MustText(IPv6, name)} }

func prefix(f Family, name string) netip.Prefix { return netip.MustParsePrefix(MustText(f, name)) }

// Member is an address inside the range of a name that stands in the code of a test.
func Member(f Family, name string, n int) netip.Addr { return nth(prefix(f, name), n) }

// host is the range that holds one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// inNetwork is an address with the prefix length of its network, as links need it.
func inNetwork(f Family, name string) netip.Prefix {
	bits := 24
	if f == IPv6 {
		bits = 64
	}
	return netip.PrefixFrom(Address(f, name), bits)
}

func nth(p netip.Prefix, n int) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-1] |= byte(n)
	b[len(b)-2] |= byte(n >> 8)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func addrOf(a net.Addr) netip.Addr {
	if at, err := netip.ParseAddrPort(a.String()); err == nil {
		return at.Addr().Unmap()
	}
	ip, _ := netip.ParseAddr(a.String()) // that of a raw socket has no port
	return ip.Unmap()
}
