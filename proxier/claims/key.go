package claims

import (
	"bytes"
	"cmp"
	"net/netip"
	"strconv"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// key identifies a frontend, which only one Service can have. It has no pointers, so the garbage collector skips the
// maps with their hundreds of thousands of keys.
type key struct {
	addr     [16]byte // zero for node ports
	port     uint16
	protocol state.Protocol
	kind     keyKind
}

// claim is a key that a Service asks for. clusterIP is true if the address is a cluster IP of that Service.
type claim struct {
	key
	clusterIP bool
}

// compare orders claims by their keys. Of two claims with the same key, the cluster IP comes first.
func (c claim) compare(other claim) int {
	switch order := c.key.compare(other.key); {
	case order != 0 || c.clusterIP == other.clusterIP:
		return order
	case c.clusterIP:
		return -1
	}
	return 1
}

func (c claim) sameKey(other claim) bool { return c.key == other.key }

type keyKind uint8

const (
	ipv4Address keyKind = iota
	ipv6Address
	ipv4NodePort
	ipv6NodePort
)

func (k key) compare(other key) int {
	return cmp.Or(
		bytes.Compare(k.addr[:], other.addr[:]),
		cmp.Compare(k.port, other.port),
		cmp.Compare(k.protocol, other.protocol),
		cmp.Compare(k.kind, other.kind),
	)
}

func keyOf(p *plan.Port, fe *plan.Frontend) key {
	if !fe.Addr.IsValid() {
		return nodePortKey(p.Family, p.Protocol, fe.Port)
	}
	k := key{addr: fe.Addr.As16(), port: fe.Port, protocol: p.Protocol}
	if p.Family == state.IPv6 {
		k.kind = ipv6Address
	}
	return k
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
	port := strconv.Itoa(int(k.port)) + "/" + k.protocol.String()
	switch k.kind {
	case ipv4Address:
		return "frontend " + netip.AddrFrom16(k.addr).Unmap().String() + ":" + port
	case ipv6Address:
		return "frontend [" + netip.AddrFrom16(k.addr).String() + "]:" + port
	}
	return "node port " + port
}
