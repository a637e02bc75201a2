package state

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// Name identifies a namespaced object.
type Name struct {
	Namespace string
	Name      string
}

func (n Name) String() string { return n.Namespace + "/" + n.Name }

// SystemNamespace has the Services of those who run the cluster.
const SystemNamespace = "kube-system"

// APIServer is the Service whose endpoints are the API servers.
func APIServer() Name { return Name{Namespace: "default", Name: "kubernetes"} }

// OfCluster reports whether a Service belongs to the cluster itself: DNS and the API servers are what all else needs.
func (n Name) OfCluster() bool { return n.Namespace == SystemNamespace || n == APIServer() }

// Compare orders names by namespace, then by name.
func (n Name) Compare(other Name) int {
	return cmp.Or(strings.Compare(n.Namespace, other.Namespace), strings.Compare(n.Name, other.Name))
}

// Family and Protocol are those of package serviceport.
type (
	Family   = serviceport.Family
	Protocol = serviceport.Protocol
)

// The families and the protocols.
const (
	IPv4 = serviceport.IPv4
	IPv6 = serviceport.IPv6

	TCP  = serviceport.TCP
	UDP  = serviceport.UDP
	SCTP = serviceport.SCTP
)

// FamilyOf returns the family of a valid, unmapped address.
func FamilyOf(a netip.Addr) Family { return serviceport.FamilyOf(a) }

// Service is a Service that this proxy serves: neither headless nor ExternalName, and without the label that gives it
// to another proxy. Its addresses are canonical (unmapped, no zone). A part that could not be parsed is missing here
// and reported as a Problem.
type Service struct {
	Name
	Short bool // it was written in the short form
	// Created decides between two Services that claim the same frontend: the older one gets it.
	Created         time.Time
	UID             UID // zero for a Service of a manifest
	ClusterIPs      []netip.Addr
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr // only those with ipMode VIP or unset
	// SourceRanges limits who may connect to the LoadBalancerIPs. The list holds both families.
	SourceRanges []netip.Prefix
	// NoSource means that the Service has source ranges, and none of them can be read: nobody may connect.
	NoSource bool
	// KeepsSources means that endpoints see the addresses of clients from outside: their replies return through this node
	// by themselves.
	KeepsSources bool
	Ports        []ServicePort

	ExternalLocal       bool          // externalTrafficPolicy: Local
	InternalLocal       bool          // internalTrafficPolicy: Local
	Affinity            time.Duration // sessionAffinity ClientIP; 0: none
	HealthCheckNodePort uint16        // 0: none

	Balancing Balancing
	Weights   []NamedWeight // of endpoints
	Outliers  OutlierDetection
	Check     *HealthCheck // nil: the Service asks for nothing; the flag decides
	AllDown   AllDown      // what happens if no endpoint is good
	SlowPath  bool         // its connections never take the fast path
	OnRemoval OnRemoval    // what happens to open connections of an endpoint that failed or is gone
}

// NamedWeight is the weight of the endpoints on a node or in a zone. A node counts before its zone.
type NamedWeight struct {
	Name   string
	Weight uint16
}

// Place is where a frontend is. The zero Addr is that of a node port.
type Place struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
}

// UID is the UID of an object in 16 bytes, which is a quarter of the memory of its text.
type UID [16]byte

// ParseUID returns the zero UID for a text that is not a UUID. The API server gives every object a UUID.
func ParseUID(text string) (u UID) {
	digits := strings.ReplaceAll(text, "-", "")
	if len(digits) != hex.EncodedLen(len(u)) {
		return UID{}
	}
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil {
		return UID{}
	}
	return u
}

// String returns the form of the API server. The zero UID is the empty text.
func (u UID) String() string {
	if u == (UID{}) {
		return ""
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Balancing is what the annotations of a Service ask of load balancing. The zero value asks for nothing. Planning
// passes it on unchanged. The dataplane validates it, because only the dataplane knows what the kernel offers.
// Balancing must stay comparable.
type Balancing struct {
	Scheduler  string // "": the default
	Flags      string // flags of the scheduler, separated by commas
	Forwarding Forwarding
}

// Forwarding is how packets reach the endpoints of a Service. After Tunnel may follow the encapsulation and its checksum,
// each after a comma.
type Forwarding string

// The ways of forwarding.
const (
	NAT    Forwarding = ""       // translated; answers come back through this node
	Route  Forwarding = "route"  // unchanged, to the MAC address of the endpoint, which answers the client itself
	Tunnel Forwarding = "tunnel" // the same in a tunnel, through routers
)

// OutlierDetection is what the annotation of a Service asks about endpoints that do not answer.
type OutlierDetection struct {
	Mode OutlierMode
	// Refusals: endpoints that refuse connections count, too.
	Refusals bool
}

// OutlierMode is what happens to endpoints that do not answer.
type OutlierMode uint8

// The modes.
const (
	OutlierDefault OutlierMode = iota // as --outlier-detection says
	OutlierOff
	OutlierObserve
	OutlierEject
)

// OnRemoval is what becomes of open TCP connections when their endpoint leaves the slices or fails.
type OnRemoval uint8

// The values of OnRemoval.
const (
	LeaveOpen  OnRemoval = iota // nothing: the two ends find out by themselves
	ResetThose                  // they end with their next packet
)

// ParseOnRemoval parses what becomes of open connections.
func ParseOnRemoval(text string) (OnRemoval, error) {
	return oneOf[OnRemoval](text, "keep", "reset")
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string // may be empty when it is the only port
	Protocol Protocol
	Port     uint16
	EndPort  uint16 // the last port of a range that begins with Port; 0: the port is no range
	NodePort uint16 // 0: none
}

// ParsePorts parses a port, or a range of ports such as 5000-6000. last is 0 if it is no range.
func ParsePorts(text string) (first, last uint16, err error) {
	begin, end, ranged := strings.Cut(text, "-")
	from, err := strconv.ParseUint(begin, 10, 16)
	to := from
	if err == nil && ranged {
		to, err = strconv.ParseUint(end, 10, 16)
	}
	switch {
	case err != nil || from == 0:
		return 0, 0, fmt.Errorf("%s is not a port from 1 to 65535, or a range such as 5000-6000", Quote(text))
	case ranged && to <= from:
		return 0, 0, fmt.Errorf("the last port of %s must be higher than the first one", Quote(text))
	case ranged:
		last = uint16(to)
	}
	return uint16(from), last, nil
}

// PortsText returns a port or a range as ParsePorts reads it.
func PortsText(first, last uint16) string {
	if last == 0 {
		return strconv.Itoa(int(first))
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// Slice is one EndpointSlice. It belongs to one Service.
type Slice struct {
	Name
	Service   Name
	Family    Family
	Ports     []SlicePort
	Endpoints []Endpoint
	// Trigger is the annotation endpoints.kubernetes.io/last-change-trigger-time. It is zero when absent.
	Trigger time.Time
	// Weight is the annotation verdict-proxy.github.io/weight. It is DefaultWeight when absent. Weights of the Service count before.
	Weight uint16
	// Backup is the annotation verdict-proxy.github.io/backup: the endpoints get connections only when no other one is good.
	Backup bool
}

// DefaultWeight is the weight of endpoints whose slice has no weight annotation.
const DefaultWeight uint16 = 1

// SlicePort is one port of a slice. It serves the Service port with the same name and protocol.
type SlicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Endpoint is one address of a slice, with the conditions that decide whether it serves.
type Endpoint struct {
	Addr        netip.Addr
	Ready       bool
	Serving     bool
	Terminating bool
	Node        string
	Zone        string
	// Hints is nil when the endpoint has none, which is the usual case.
	Hints *Hints
}

// Hints are the topology hints of one endpoint.
type Hints struct {
	Zones []string
	Nodes []string
}

// Node is what the proxy needs of this node's Node object.
type Node struct {
	Name      string
	Addresses []netip.Addr // InternalIP first, then ExternalIP, in the order of upstream's node IP detection
	PodCIDRs  []netip.Prefix
	Zone      string   // label topology.kubernetes.io/zone
	Taints    []string // their keys
	// Leaving says why the Node is about to go, whatever its taints are; "": it is not.
	Leaving string
}
