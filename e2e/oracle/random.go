package oracle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// untrue is for which pods the podCIDRs of the Node do not tell where they are.
type untrue int

const (
	noPods untrue = iota
	otherPods
	allPods
)

// Random makes a random cluster. No two Services ask for the same address and port: who gets it is a matter of package claims.
func Random(r *rand.Rand) *Cluster {
	c := &Cluster{
		Node: "node-1", Zone: []string{"zone-1", ""}[r.IntN(2)],
		NodeAddrs:    []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		PodRanges:    []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00:10::/64")},
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.0.128.0/17"), netip.MustParsePrefix("fd00:10::8000/113")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24"), netip.MustParsePrefix("fd00:96::/120")},
		Failed:       map[state.Name]state.Health{},
		Translates:   map[netip.Addr]netip.Addr{},
	}
	c.untrue = untrue(r.IntN(3))
	for i := range 1 + r.IntN(4) {
		svc := c.service(r, byte(i))
		c.Services = append(c.Services, svc)
		for s := range r.IntN(4) {
			c.Slices = append(c.Slices, c.slice(r, svc, byte(s)))
		}
	}
	if r.IntN(3) == 0 { // the addresses of the first two Services
		c.LoadBalancerCIDRs = []netip.Prefix{netip.MustParsePrefix("203.0.0.0/23"), netip.MustParsePrefix("fd00:3::/119")}
	}
	targets := append(c.destinations(), c.clients()...)
	for i := range byte(r.IntN(8)) {
		to := targets[r.IntN(len(targets))]
		c.Translates[address(to.Is4(), 198, 0, i)] = to
	}
	return c
}

// address is one of the addresses number i.
func address(v4 bool, prefix byte, i ...byte) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{map[byte]byte{96: 10, 10: 10, 198: 198, 203: 203}[prefix], map[byte]byte{96: 96, 198: 19}[prefix], i[0], i[1]})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: map[byte]byte{96: 0x96, 10: 0x10, 198: 0x19, 203: 0x3}[prefix], 14: i[0], 15: i[1]})
}

func (c *Cluster) service(r *rand.Rand, number byte) *state.Service {
	chance := func(n int) bool { return r.IntN(n) == 0 }
	svc := &state.Service{
		Name: state.Name{Namespace: "shop", Name: fmt.Sprint("svc-", number)}, Created: time.Unix(int64(number), 0),
		InternalLocal: chance(3), ExternalLocal: chance(2), AllDown: state.AllDown(r.IntN(3)),
	}
	if chance(4) {
		svc.Affinity = time.Hour
	}
	families := [][]bool{{true}, {false}, {true, false}}[r.IntN(3)]
	for _, v4 := range families {
		svc.ClusterIPs = append(svc.ClusterIPs, address(v4, 96, 0, 10+number))
		for n := range byte(r.IntN(3)) {
			svc.ExternalIPs = append(svc.ExternalIPs, address(v4, 203, number, n))
		}
		for n := range byte(r.IntN(3)) { // some of them are external IPs as well
			svc.LoadBalancerIPs = append(svc.LoadBalancerIPs, address(v4, 203, number, 1+n))
		}
		if chance(6) { // in the range of cluster IPs
			svc.LoadBalancerIPs = append(svc.LoadBalancerIPs, address(v4, 96, 0, 30+number))
		}
	}
	if chance(2) {
		for _, text := range []string{"198.51.100.0/25", "192.0.2.0/24", "10.0.1.0/24", "0.0.0.0/0", "2001:db8:1::/64", "2001:db8::/96", "::/0"} {
			if chance(4) {
				svc.SourceRanges = append(svc.SourceRanges, netip.MustParsePrefix(text))
			}
		}
		svc.NoSource = len(svc.SourceRanges) == 0 && chance(2)
	}
	ports := []state.ServicePort{
		{Name: "http", Protocol: state.TCP, Port: 80}, {Name: "dns", Protocol: state.UDP, Port: 53},
		{Name: "dns-tcp", Protocol: state.TCP, Port: 53}, {Name: "sctp", Protocol: state.SCTP, Port: 80},
	}
	for _, p := range ports[:1+r.IntN(len(ports))] {
		if chance(2) {
			p.NodePort = 30000 + uint16(number)*10 + uint16(len(svc.Ports))
		}
		svc.Ports = append(svc.Ports, p)
	}
	return svc
}

// network is the part of the pods' network where a pod of a Service is. The podCIDRs have its upper half.
func (c *Cluster) network(r *rand.Rand, svc *state.Service, node string) byte {
	n := svc.Name.Name[len(svc.Name.Name)-1] - '0' + 1
	if node == c.Node && c.untrue != allPods || c.untrue != noPods && r.IntN(2) == 0 {
		n += 128
	}
	return n
}

func (c *Cluster) slice(r *rand.Rand, svc *state.Service, number byte) *state.Slice {
	chance := func(n int) bool { return r.IntN(n) == 0 }
	v4 := chance(2)
	sl := &state.Slice{
		Name:    state.Name{Namespace: svc.Namespace, Name: fmt.Sprint(svc.Name.Name, "-", number)},
		Service: svc.Name, Family: map[bool]state.Family{true: state.IPv4, false: state.IPv6}[v4],
		Weight: []uint16{1, 1, 1, 3, 0}[r.IntN(5)], Backup: chance(3),
	}
	for i, p := range svc.Ports {
		if !chance(6) {
			sl.Ports = append(sl.Ports, state.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: 8080 + uint16(i) + uint16(r.IntN(2))*100})
		}
	}
	hints, healthy := chance(2), chance(2)
	for i := range byte(r.IntN(5)) {
		node := []string{"node-1", "node-2", ""}[r.IntN(3)]
		e := state.Endpoint{
			Addr: address(v4, 10, c.network(r, svc, node), number*16+i), Node: node,
			Ready: !chance(3), Serving: chance(2), Terminating: chance(2),
		}
		if chance(12) { // a cluster IP, or an address next to one
			e.Addr = address(v4, 96, 0, 8+byte(r.IntN(8)))
		}
		if hints && !chance(8) {
			e.Hints = &state.Hints{Zones: []string{[]string{"zone-1", "zone-2"}[r.IntN(2)]}}
			if chance(2) {
				e.Hints.Nodes = []string{[]string{"node-1", "node-2"}[r.IntN(2)]}
			}
		}
		sl.Endpoints = append(sl.Endpoints, e)
		for _, p := range sl.Ports {
			if !healthy && chance(2) {
				f := state.Failure{Protocol: p.Protocol, At: netip.AddrPortFrom(e.Addr, p.Port), Sure: true}
				c.Failed[svc.Name] = append(c.Failed[svc.Name], f)
			}
		}
	}
	slices.SortFunc(c.Failed[svc.Name], state.Failure.Compare)
	return sl
}

// Packets lists all kinds of packets that matter for a cluster: for each address that a Service has, and its neighbors, each port
// of a Service, and its neighbors, each protocol, from each kind of client.
func (c *Cluster) Packets() (list []Packet) {
	clients, destinations, ports := c.clients(), c.destinations(), c.ports()
	for _, dst := range destinations {
		for _, src := range clients {
			if src.Is4() != dst.Is4() || src == dst || src == c.Translates[dst] {
				continue
			}
			for _, port := range ports {
				for _, protocol := range []state.Protocol{state.TCP, state.UDP, state.SCTP} {
					list = append(list, Packet{Src: src, Dst: netip.AddrPortFrom(dst, port), Protocol: protocol})
				}
			}
		}
	}
	return list
}

func (c *Cluster) destinations() []netip.Addr {
	list := slices.AppendSeq(slices.Clone(c.NodeAddrs), maps.Keys(c.Translates))
	for _, svc := range c.Services {
		for _, a := range slices.Concat(svc.ClusterIPs, svc.ExternalIPs, svc.LoadBalancerIPs) {
			list = append(list, a, a.Next(), a.Prev())
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

func (c *Cluster) ports() []uint16 {
	list := []uint16{1}
	for _, svc := range c.Services {
		for _, p := range svc.Ports {
			list = append(list, p.Port, p.Port+1, max(1, p.NodePort))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// clients are pods, some of which may reach themselves, the node, and hosts outside.
func (c *Cluster) clients() []netip.Addr {
	list := slices.Clone(c.NodeAddrs)
	for _, sl := range c.Slices {
		if len(sl.Endpoints) > 0 {
			list = append(list, sl.Endpoints[0].Addr)
		}
	}
	for _, text := range []string{"10.0.200.1", "10.0.100.1", "198.51.100.1", "198.51.100.200", "fd00:10::c801", "fd00:10::6401", "2001:db8:1::1", "2001:db8:2::1"} {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}
