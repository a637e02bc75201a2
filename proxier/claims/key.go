package claims

import (
	"bytes"
	"cmp"
	"net/netip"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// key identifies a frontend, which only one Service can have. It has no pointers, so the garbage collector skips the
// maps with their hundreds of thousands of keys.
type key struct {
	addr     [16]byte // zero for node ports
	port     uint16
	end      uint16 // the last port of a range; 0: one port
	protocol state.Protocol
	kind     keyKind
}

// claim is a key that a Service asks for.
type claim struct {
	key
	rank rank
}

// rank is how far a claim can be trusted, by who writes the field that it comes from. A lower rank has precedence.
type rank uint8

const (
	rankClusterIP    rank = iota // the API server allocates it
	rankNodePort                 // the API server allocates it or checks it; also healthCheckNodePort
	rankLoadBalancer             // a controller writes it into the status
	rankExternalIP               // the owner of the Service writes it, and nothing checks it
)

// rankOf returns the rank of a frontend. Who allocates a load balancer IP has checked the first port of a range only, so the range
// is what the owner of the Service wants.
func rankOf(fe *plan.Frontend) rank {
	switch {
	case fe.Kind == plan.ClusterIP:
		return rankClusterIP
	case fe.Kind == plan.NodePort:
		return rankNodePort
	case fe.Kind == plan.LoadBalancer && fe.EndPort == 0:
		return rankLoadBalancer
	}
	return rankExternalIP
}

// compare orders claims by their keys. Of two claims with the same key, the stronger one comes first.
func (c claim) compare(other claim) int {
	if order := c.key.compare(other.key); order != 0 {
		return order
	}
	return cmp.Compare(c.rank, other.rank)
}

func (c claim) sameKey(other claim) bool { return c.key == other.key }

// besideNodePort reports whether the claim is that of an external address that may be a node port address: it wants the
// node port with the same number to belong to no other Service. See beside.
func (c claim) besideNodePort() bool { return c.rank > rankNodePort && c.isNodePort() }

func (k key) isNodePort() bool { return k.kind == ipv4NodePort || k.kind == ipv6NodePort }

// place is the key without its ports.
func (k key) place() key { return key{addr: k.addr, protocol: k.protocol, kind: k.kind} }

func (k key) lastPort() uint16 { return max(k.port, k.end) }

// overlaps reports whether two keys of one place have a port in common.
func (k key) overlaps(o key) bool { return k.port <= o.lastPort() && o.port <= k.lastPort() }

type keyKind uint8

const (
	ipv4Address keyKind = iota
	ipv6Address
	ipv4NodePort
	ipv6NodePort
)

func (k key) compare(other key) int {
	// Comparing step by step takes half the time of cmp.Or, which computes all its arguments first.
	if order := bytes.Compare(k.addr[:], other.addr[:]); order != 0 {
		return order
	}
	if order := cmp.Compare(k.port, other.port); order != 0 {
		return order
	}
	if order := cmp.Compare(k.protocol, other.protocol); order != 0 {
		return order
	}
	if order := cmp.Compare(k.kind, other.kind); order != 0 {
		return order
	}
	return cmp.Compare(k.end, other.end)
}

func keyOf(p *plan.Port, fe *plan.Frontend) key {
	if !fe.Addr.IsValid() {
		return nodePortKey(p.Family, p.Protocol, fe.Port)
	}
	k := key{addr: fe.Addr.As16(), port: fe.Port, end: fe.EndPort, protocol: p.Protocol}
	if p.Family == state.IPv6 {
		k.kind = ipv6Address
	}
	return k
}

// nodePort returns the key of the node port, or range of node ports, that an address frontend hides at a node port address.
func (k key) nodePort() key {
	family := state.IPv4
	if k.kind == ipv6Address {
		family = state.IPv6
	}
	out := nodePortKey(family, k.protocol, k.port)
	out.end = k.end
	return out
}

func nodePortKey(f state.Family, protocol state.Protocol, port uint16) key {
	k := key{port: port, protocol: protocol, kind: ipv4NodePort}
	if f == state.IPv6 {
		k.kind = ipv6NodePort
	}
	return k
}

// healthCheckKeys returns the keys of a healthCheckNodePort. It listens on the node port addresses of both families.
func healthCheckKeys(port uint16) [2]key {
	return [2]key{nodePortKey(state.IPv4, state.TCP, port), nodePortKey(state.IPv6, state.TCP, port)}
}

// String returns a key in human-readable form: frontend 192.0.2.1:80/tcp, or node port 30080/tcp.
func (k key) String() string {
	port := k.ports()
	switch k.kind {
	case ipv4Address:
		return "frontend " + netip.AddrFrom16(k.addr).Unmap().String() + ":" + port
	case ipv6Address:
		return "frontend [" + netip.AddrFrom16(k.addr).String() + "]:" + port
	}
	return "node port " + port
}

// ports returns the port or the range of a key.
func (k key) ports() string { return state.PortsText(k.port, k.end) + "/" + k.protocol.String() }
