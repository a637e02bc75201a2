// Package plan decides, without clock or I/O, what one Service becomes: which frontends it has, which endpoints
// serve them under which policy, what is masqueraded, filtered, refused or dropped. It turns state values into
// engine-neutral values; the nft and ipvsctl packages turn those into kernel objects.
package plan

import (
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Environment is what planning needs to know about the node; one value holds for all Services of a pass.
type Environment struct {
	NodeName string
	Zone     string
	// NodeAddresses are the addresses of the node itself (both families).
	NodeAddresses []netip.Addr
	// Families that this node serves.
	IPv4, IPv6 bool
	// DetectsLocal says whether traffic from local pods can be told apart (see Program.PodSource in the nft package):
	// without it, pods are not short-circuited past externalTrafficPolicy Local.
	DetectsLocal bool
}

// Service is the plan of one Service.
type Service struct {
	Name        state.Name
	Ports       []Port       // one for each Service port and family
	HealthCheck *HealthCheck // nil: none wanted
	Problems    []state.Problem
}

// HealthCheck is a healthCheckNodePort server that should run.
type HealthCheck struct {
	NodePort uint16
	// LocalIPv4 and LocalIPv6 are the ready endpoint addresses on this node, each counted once whatever the number
	// of ports. Upstream has one server for each family with a count of its own, so a dual-stack Pod is one, not two.
	LocalIPv4, LocalIPv6 int
	LocalEndpoints       int // the larger of the two
}

// Port is the plan of one Service port in one family.
type Port struct {
	Family   state.Family
	Name     string // namespace/name:port, as shown to people: the port's name, or its number when it has none
	Protocol state.Protocol

	Affinity time.Duration // 0: none
	// Balancing is the Service's, unchanged.
	Balancing state.Balancing
	// IPVS says that virtual servers take the connections. Planning leaves it false: the loop chooses the engine.
	IPVS bool

	// Cluster are the endpoints of traffic policy Cluster, after topology hints and the terminating fallback.
	// Local are those of policy Local. Each is nil unless a frontend needs it, and sorted by address and port.
	// An endpoint whose weight is 0 takes no new connections and is in neither.
	Cluster []Endpoint
	Local   []Endpoint
	// Serving are all endpoints whose flows are still good (serving, terminating or not), whatever policy and
	// topology say. Only for UDP, nil otherwise: connection tracking keeps flows to these.
	Serving []netip.AddrPort

	Frontends []Frontend
}

// Endpoint is a place where a pool sends connections.
type Endpoint struct {
	Addr   netip.AddrPort
	Weight uint16
	Local  bool // on this node
}

// FrontendKind says where a frontend comes from.
type FrontendKind uint8

// The kinds of frontends a Service port can have.
const (
	ClusterIP FrontendKind = iota
	ExternalIP
	LoadBalancer
	NodePort
)

func (k FrontendKind) String() string {
	switch k {
	case ClusterIP:
		return "cluster IP"
	case ExternalIP:
		return "external IP"
	case LoadBalancer:
		return "load balancer"
	case NodePort:
		return "node port"
	}
	return "unknown"
}

// Policy says which pool serves a frontend.
type Policy uint8

// The policies.
const (
	// ClusterPolicy: all endpoints.
	ClusterPolicy Policy = iota
	// LocalPolicy: only endpoints on this node (internalTrafficPolicy Local).
	LocalPolicy
	// SourcePolicy: pods and the node itself see all endpoints, everyone else only those on this node
	// (externalTrafficPolicy Local with its short circuit).
	SourcePolicy
)

// Unserved says what happens to packets that no endpoint can take under the frontend's policy.
type Unserved uint8

// The ways of refusing.
const (
	// Served: there is an endpoint (for SourcePolicy: a local one).
	Served Unserved = iota
	// Reject: no endpoint anywhere; TCP gets a reset, others an ICMP error.
	Reject
	// Drop: endpoints exist, but none that the policy allows. For SourcePolicy only outside traffic is dropped:
	// what the short circuit sends to the Cluster pool is still served.
	Drop
)

// Masquerade says whose source address is replaced.
type Masquerade uint8

// The masquerading modes.
const (
	// MasqueradeOffCluster: traffic that does not come from a pod (cluster IPs).
	MasqueradeOffCluster Masquerade = iota
	// MasqueradeAlways: all traffic (external addresses with policy Cluster).
	MasqueradeAlways
	// MasqueradeNode: only what the node itself sends (external addresses with policy Local).
	MasqueradeNode
)

// Frontend is one address, protocol and port at which a Service port is reached.
type Frontend struct {
	Kind       FrontendKind
	Addr       netip.Addr // the zero Addr for NodePort: every node-port address
	Port       uint16
	Policy     Policy
	Unserved   Unserved
	Masquerade Masquerade
	// Firewalled limits the frontend to Sources (a load balancer's source ranges in this family; may be empty:
	// then nobody is allowed in this family).
	Firewalled bool
	Sources    []netip.Prefix
}
