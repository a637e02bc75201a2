package plan

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Environment is what planning needs to know about the node. One value holds for all Services of a pass.
type Environment struct {
	NodeName string
	Zone     string
	// NodeAddresses are the addresses of the node itself, in both families.
	NodeAddresses []netip.Addr
	// IPv4 and IPv6 are the families that this node serves.
	IPv4, IPv6 bool
	PodCIDRs   []netip.Prefix // of the Node object
	// ExternalIPs are the ranges in which external IPs are served.
	ExternalIPs []netip.Prefix
	// ServiceCIDRs are the ranges of cluster IPs. No endpoint is there.
	ServiceCIDRs []netip.Prefix
	// Draining means that no Service takes new connections: all endpoints count as those of weight 0, and what arrives is
	// dropped, so that its client tries again and reaches another node.
	Draining bool
	// SlowPath is why no connection takes the fast path; "": some may.
	SlowPath string
}

// Service is the plan of one Service.
type Service struct {
	Name        state.Name
	Created     time.Time
	Ports       []Port       // one for each Service port and family
	HealthCheck *HealthCheck // nil: the Service wants none
	Outliers    state.OutlierDetection
	// Choices has the endpoints that can get connections, each once and sorted. It is nil unless somebody watches them,
	// one of them is not good, or one is a backup.
	Choices  []Choice
	PodCIDRs Evidence
	Problems []state.Problem
	Used     Usage
	Cut      bool // something had no room in the Limits
	Narrow   bool // weights or hash tables had no room in Limits.Slots
}

// report adds a Problem.
func (s *Service) report(field, format string, args ...any) {
	s.Problems = append(s.Problems, state.Problem{
		Kind: "Service", Object: s.Name, Field: field, Reason: fmt.Sprintf(format, args...),
	})
}

// Evidence is what pods among the endpoints of a Service show about the podCIDRs of the Node: whether those on this node, and no
// others, are in them. Many network plugins give pods other addresses.
type Evidence struct{ For, Against bool }

// HealthCheck is a healthCheckNodePort server that the node must run.
type HealthCheck struct {
	NodePort uint16
	// LocalIPv4 and LocalIPv6 count the ready endpoint addresses on this node, each address once for all ports
	// together. Each family has its own server with its own count, as upstream has it. A Service of one family has the
	// same count in both: upstream has no server in the other one.
	LocalIPv4, LocalIPv6 int
	// ElsewhereIPv4 and ElsewhereIPv6 say whether another node has a ready endpoint.
	ElsewhereIPv4, ElsewhereIPv6 bool
}

// Port is the plan of one Service port in one family.
type Port struct {
	Family   state.Family
	Name     string // namespace/name:port, where port is the name of the port, or its number when it has no name
	Protocol state.Protocol

	Affinity time.Duration // 0: none
	// Balancing is the value of the Service.
	Balancing state.Balancing

	// Cluster holds the endpoints of traffic policy Cluster, after topology hints and the fallback to terminating
	// endpoints. Local holds the endpoints of policy Local. Each pool is sorted by address and port, and is nil unless
	// a frontend needs it. An endpoint of weight 0 takes no new connections and is in neither pool.
	Cluster []serviceport.Endpoint
	Local   []serviceport.Endpoint
	// Serving holds all endpoints that still serve the flows they have, even if they are terminating and whatever
	// policy and topology say. Connection tracking keeps flows to them. It is nil unless the protocol is UDP or Resets is
	// set.
	Serving []netip.AddrPort
	Resets  bool // TCP connections to endpoints that Serving does not have end with their next packet

	Frontends []Frontend
	Down      bool   // endpoints could get connections, but none of them is good
	SlowPath  string // why no connection takes the fast path; "": they do
	Plain     bool   // nft picks endpoints at random, all alike: weights and hash tables have no room
}

// FrontendKind is the field of the Service from which a frontend comes.
type FrontendKind uint8

// The kinds of frontends a Service port can have.
const (
	ClusterIP FrontendKind = iota
	ExternalIP
	LoadBalancer
	NodePort
)

// kinds has the name of each kind, and the field of the Service from which it comes.
func kinds() [NodePort + 1]struct{ name, field string } {
	return [...]struct{ name, field string }{
		ClusterIP:    {"cluster IP", "spec.clusterIPs"},
		ExternalIP:   {"external IP", "spec.externalIPs"},
		LoadBalancer: {"load balancer", "status.loadBalancer.ingress"},
		NodePort:     {"node port", "spec.ports.nodePort"},
	}
}

func (k FrontendKind) String() string { return kinds()[k].name }

// Field returns the path of the field from which a kind of frontend comes.
func (k FrontendKind) Field() string { return kinds()[k].field }

// Frontend is one address and port at which clients reach a Service port. Its Pool is the one that the policy allows, even if
// the pool is empty. Planning leaves IPVS false, because the dataplane chooses the engine.
type Frontend struct {
	serviceport.Frontend
	Kind FrontendKind
	// Sources are the load balancer's source ranges in this family, if the frontend is Firewalled. When they are empty, no
	// client of this family is allowed.
	Sources []netip.Prefix
	// Good means that the endpoints that get connections are good: not ejected, and not failing their checks.
	Good bool
	// Unchanged means that a virtual server passes the connections on without NAT. Planning leaves it false, too.
	Unchanged bool
}

// Use is what a plan makes of an endpoint.
type Use uint8

// The uses. An endpoint of several ports has the first one that holds for any of them.
const (
	InUse     Use = iota // it gets connections
	KeptLast             // it has failed, and gets connections because no endpoint is good
	KeptShare            // it has failed, and counts as good because no larger part of the pool may be ejected
	Idle                 // it is good, and others get the connections
	Ejected              // it is bad, and gets none
)

// Choice is what a plan makes of one endpoint.
type Choice struct {
	Protocol state.Protocol
	At       netip.AddrPort
	Local    bool // on this node
	Backup   bool
	Accepts  bool // it has failed, and accepts connections
	Use      Use
}

// Usage is how much a plan has of what Limits count.
type Usage struct{ Frontends, Elements, Ranges int }
