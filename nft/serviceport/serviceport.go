// Package serviceport has the words in which plans and engines speak of a service port, one port of a Service in one family:
// its family and protocol, which pool serves a frontend, what becomes of packets that no pool takes, and whose source
// addresses are replaced. It imports nothing of this module, so that planning knows no kernel, and the engines no plan.
package serviceport

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
)

// Family is an address family. The values are those of the kernel. Everything that differs between the families is derived
// from them.
type Family uint8

// The two families.
const (
	IPv4 Family = 2
	IPv6 Family = 10
)

// FamilyOf is the family of a valid, unmapped address.
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

// Version is the name of the family in Kubernetes, and in what people read.
func (f Family) Version() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// ParseVersion is the inverse of Version. It is IPv4 for other texts.
func ParseVersion(text string) Family {
	if text == IPv6.Version() {
		return IPv6
	}
	return IPv4
}

// Index is 0 for IPv4, and 1 for IPv6.
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

// WithoutNested returns the prefixes of a family, sorted and without those inside others: the kernel refuses ranges
// that overlap. Two prefixes never overlap in part.
func WithoutNested(list []netip.Prefix, f Family) []netip.Prefix {
	var own []netip.Prefix
	for _, p := range list {
		if FamilyOf(p.Addr()) == f {
			own = append(own, p.Masked())
		}
	}
	slices.SortFunc(own, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range own {
		if n := len(out); n > 0 && out[n-1].Overlaps(p) {
			continue // the list is sorted by address, short prefixes first: p is inside the earlier prefix
		}
		out = append(out, p)
	}
	return out
}

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols that a Service port can have (IANA protocol numbers).
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
	return strconv.Itoa(int(p))
}

// ParseProtocol parses the name that Kubernetes gives a protocol; 0: it is none of the three.
func ParseProtocol(name string) Protocol {
	switch name {
	case "TCP":
		return TCP
	case "UDP":
		return UDP
	case "SCTP":
		return SCTP
	}
	return 0
}

// Pool is which endpoints serve a frontend.
type Pool uint8

// The choices.
const (
	NoPool      Pool = iota // none: packets are refused, or IPVS serves them
	ClusterPool             // all endpoints
	LocalPool               // the endpoints on this node (internalTrafficPolicy Local)
	// BySource is the cluster pool for pods and the node itself, and the local pool for other clients (externalTrafficPolicy
	// Local with its short circuit).
	BySource
)

// Refusal is what happens to packets that the frontend's pool does not take.
type Refusal uint8

// The refusals.
const (
	// NoRefusal means that there is an endpoint. For BySource it means a local endpoint.
	NoRefusal Refusal = iota
	// Reject means that there is no endpoint anywhere. TCP gets a reset, other protocols get an ICMP error.
	Reject
	// Drop means that endpoints exist, but the policy allows none of them, and the client gets no answer. For BySource, only
	// traffic from outside is dropped. Traffic that the short circuit sends to the cluster pool is still served.
	Drop
)

// Masquerade is whose source addresses are replaced. Whatever the mode, connections to a cluster IP are masqueraded if they
// do not come from pods.
type Masquerade uint8

// The modes.
const (
	NoMasquerade     Masquerade = iota // nobody's but for the above: cluster IPs
	MasqueradeAlways                   // external addresses with policy Cluster
	// MasqueradeNode is for connections from the node itself: external addresses with policy Local, and those of Services that
	// keep sources.
	MasqueradeNode
)

// Endpoint is an address and port to which a pool sends connections.
type Endpoint struct {
	// Addr has the port 0 if connections keep their port. Either all endpoints of a service port have it, or none.
	Addr   netip.AddrPort
	Weight uint16
	// Slots is how many slots of its pool in nft the endpoint has, which is its share of the connections; 0 counts as 1.
	Slots uint16
	// Local means that the endpoint's connections to itself need masquerading: it is on this node, or its replies return
	// through it.
	Local bool
}

// Frontend is an address and port at which clients reach a service port.
type Frontend struct {
	Addr netip.Addr // the zero Addr: a node port, at every node-port address
	Port uint16
	// EndPort is the last port of a range; 0: the frontend has one port. A node port has no range.
	EndPort uint16

	ClusterIP  bool // packets to other ports of the address are refused
	Pool       Pool
	Refusal    Refusal
	Masquerade Masquerade
	// IPVS is set if a virtual server serves the packets that the pool does not take. The program lets them pass.
	IPVS bool

	// HoldsRefusals is set if the first refusal of a dead endpoint is not to reach the client, whose next packet goes to another
	// endpoint. The protocol is TCP, and a pool serves the frontend. A frontend that holds refusals for its other endpoints
	// delays that of its last one by a second.
	HoldsRefusals bool

	// FastPath is set if connections may take the fast path. The protocol is TCP or UDP.
	FastPath bool

	Firewalled bool // only clients in the source ranges of the port may use it; no meaning for a node port
}

// Suspicion is an endpoint that the kernel noticed.
type Suspicion struct {
	Endpoint netip.AddrPort
	// Refusing means that the endpoint answered with resets. Otherwise it did not answer.
	Refusing bool
	// Packets counts its repeated packets, or its resets, since it was noticed first.
	Packets uint64
}

// Kind is a kind of change. The kernel needs about as long for one change of a kind as for another.
type Kind uint8

// The kinds.
const (
	Slot      Kind = iota // of a pool or of a hash table
	Key                   // any other element of a set or map
	Range                 // a frontend with a range of ports: the kernel copies the whole set
	Operation             // of IPVS
	Kinds
)

// Counts count changes by their kind.
type Counts [Kinds]int32

// Add adds other counts.
func (c *Counts) Add(other Counts) {
	for kind, n := range other {
		c[kind] += n
	}
}

// Sum counts the changes of all kinds.
func (c Counts) Sum() (n int) {
	for _, of := range c {
		n += int(of)
	}
	return n
}
