package nft

import (
	"net/netip"
	"time"
)

// Port is one Service port in one family, as the program is to serve it.
type Port struct {
	Family   Family
	Name     string // namespace/name:port; identifies the port within its family and is the comment of its elements
	Protocol uint8

	Method   Method
	Affinity time.Duration // 0: none; whole seconds

	// Cluster and Local are the endpoints of the two pools, sorted by address and port, without repetition.
	Cluster []Endpoint
	Local   []Endpoint
	// Hairpin are the addresses on this node among the endpoints that only IPVS serves: their connections to themselves
	// need masquerading.
	Hairpin []netip.Addr

	Frontends []Frontend
}

// Endpoint is a place where connections go.
type Endpoint struct {
	Addr netip.AddrPort
	// Slots is how many slots of its pool the endpoint takes (its share); 0 counts as 1.
	Slots uint16
	// Local says that it runs on this node: its connections to itself need masquerading.
	Local bool
}

// Frontend is an address and port at which a Service port is reached.
type Frontend struct {
	Addr netip.Addr // the zero Addr: a node port, reached at every node-port address
	Port uint16

	ClusterIP  bool // other ports of the address are refused
	Pool       PoolChoice
	Refusal    Refusal
	Masquerade Masquerade
	// IPVS says that a virtual server takes what the pool does not: the packets are let through to it.
	IPVS bool

	Firewalled bool
	Sources    []netip.Prefix // who may use it when Firewalled; of the frontend's family, in any order
}

// PoolChoice says which pool serves a frontend.
type PoolChoice uint8

// The choices. NoPool is a frontend that is only refused or dropped.
const (
	NoPool PoolChoice = iota
	ClusterPool
	LocalPool
	// BySource: pods and the node itself get the cluster pool, everyone else the local pool.
	BySource
)

// Refusal says what happens to packets that the frontend's pool does not take.
type Refusal uint8

// The refusals.
const (
	NoRefusal Refusal = iota
	Reject            // TCP gets a reset, others an ICMP error
	Drop
)

// Masquerade says whose source address is replaced. Traffic from outside the pods to a cluster IP is masqueraded
// whatever the frontend says.
type Masquerade uint8

// The modes.
const (
	NoMasquerade Masquerade = iota
	MasqueradeAlways
	MasqueradeNode // what the node itself sends
)

// Globals are the parts of the ruleset that belong to no service port.
type Globals struct {
	MasqueradeAll bool
	// IPVS says that there are virtual servers of ours beside the tables. The rules for them are left out otherwise, except
	// those that guard addresses (see Guard).
	IPVS bool
	// PodInterface tells local pods by their interface: a name, or a prefix ending in "*". Empty: by PodCIDRs.
	PodInterface      string
	PodCIDRs          []netip.Prefix
	ServiceCIDRs      []netip.Prefix
	NodePortAddresses []netip.Addr
}
