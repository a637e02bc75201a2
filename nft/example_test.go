package nft

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// example is a state that uses many features of the program.
type example struct {
	name    string
	ports   []contents.Port
	globals contents.Globals
	// large is set if the text is too long for a golden file.
	large bool
}

const (
	tcp  = unix.IPPROTO_TCP
	udp  = unix.IPPROTO_UDP
	sctp = unix.IPPROTO_SCTP
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, addr(s))
	}
	return out
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// endpoints makes remote endpoints of one slot.
func endpoints(list ...string) []contents.Endpoint {
	var out []contents.Endpoint
	for _, s := range list {
		out = append(out, contents.Endpoint{Addr: netip.MustParseAddrPort(s)})
	}
	return out
}

// onNode makes endpoints that run on the node.
func onNode(list ...string) []contents.Endpoint {
	out := endpoints(list...)
	for i := range out {
		out[i].Local = true
	}
	return out
}

func clusterIP(ip string, port uint16) contents.Frontend {
	return contents.Frontend{Addr: addr(ip), Port: port, ClusterIP: true, Pool: program.ClusterPool}
}

func external(ip string, port uint16) contents.Frontend {
	return contents.Frontend{Addr: addr(ip), Port: port, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways}
}

// externalLocal is an external address with policy Local.
func externalLocal(ip string, port uint16) contents.Frontend {
	return contents.Frontend{Addr: addr(ip), Port: port, Pool: program.BySource, Masquerade: contents.MasqueradeNode}
}

func nodePort(port uint16) contents.Frontend {
	return contents.Frontend{Port: port, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways}
}

func ranged(fe contents.Frontend, last uint16) contents.Frontend {
	fe.EndPort = last
	return fe
}

func refused(fe contents.Frontend, how program.Refusal) contents.Frontend {
	fe.Refusal = how
	if how == program.Reject {
		fe.Pool = program.NoPool
	}
	return fe
}

func limited(fe contents.Frontend) contents.Frontend {
	fe.Firewalled = true
	return fe
}

func examples() []example {
	return []example{kindsExample(), stickyExample(), hashExample(), ipvsExample(), bareExample(), emptyExample()}
}

// fastPathExample offers a frontend of each kind to the kernel. It is not among examples: only an emulated kernel has flowtables.
func fastPathExample() example {
	offered := func(fe contents.Frontend) contents.Frontend {
		fe.FastPath = true
		return fe
	}
	return example{name: "fast-path", globals: contents.Globals{FastPath: 20, BridgesStay: true}, ports: []contents.Port{
		{Family: program.IPv4, Name: "default/web:http", Protocol: tcp, Cluster: endpoints("10.0.2.1:8080"), Frontends: []contents.Frontend{
			offered(clusterIP("10.96.0.10", 80)), external("192.0.2.10", 80), offered(nodePort(30080)),
		}},
		{Family: program.IPv6, Name: "media/rtp:rtp", Protocol: udp, Cluster: endpoints("[fd00:10:0:1::5]:0"),
			Frontends: []contents.Frontend{offered(ranged(clusterIP("fd00:96::60", 10000), 10009))}},
	}}
}

// kindsExample has every kind of frontend and refusal, in both families. Pods are recognized by their addresses.
func kindsExample() example {
	nodePortLocal := contents.Frontend{Port: 30081, Pool: program.BySource, Masquerade: contents.MasqueradeNode}
	web := append(onNode("10.0.1.1:8080", "10.0.1.2:8080"), endpoints("10.0.2.1:8080", "10.0.2.2:8080")...)
	return example{
		name: "kinds",
		globals: contents.Globals{
			Unanswered: true, DropInvalid: true,
			PodCIDRs:          prefixes("10.0.0.0/16", "10.1.0.0/16", "fd00:10::/56"),
			ServiceCIDRs:      prefixes("10.96.0.0/16", "255.0.0.0/8", "fd00:96::/112"),
			NodePortAddresses: addrs("192.168.7.1", "fd00:7::1"),
		},
		ports: []contents.Port{
			{Family: program.IPv4, Name: "default/web:http", Protocol: tcp, Cluster: web, Local: web[:2], Frontends: []contents.Frontend{
				clusterIP("10.96.0.10", 80), external("192.0.2.10", 80), nodePort(30080),
				externalLocal("198.51.100.10", 80), nodePortLocal,
				limited(external("192.0.2.11", 80)), limited(externalLocal("198.51.100.11", 80)),
			}, Sources: prefixes("198.51.100.0/24", "10.0.0.0/16", "10.0.3.0/24", "192.168.7.1/32")},
			{Family: program.IPv6, Name: "default/web:http", Protocol: tcp,
				Cluster: append(onNode("[fd00:10::1]:8080"), endpoints("[fd00:10:0:1::1]:8080")...),
				Local:   onNode("[fd00:10::1]:8080"),
				Frontends: []contents.Frontend{
					clusterIP("fd00:96::a", 80), external("2001:db8::a", 80), nodePort(30080),
					limited(externalLocal("2001:db8::b", 80)),
				}, Sources: prefixes("2001:db8:1::/48", "::/0")},
			{Family: program.IPv4, Name: "kube-system/dns:dns", Protocol: udp, Cluster: endpoints("10.0.2.53:53", "10.0.3.53:53", "10.0.4.53:53"),
				Frontends: []contents.Frontend{clusterIP("10.96.0.53", 53)}},
			{Family: program.IPv6, Name: "media/signal:m3ua", Protocol: sctp,
				Cluster:   []contents.Endpoint{{Addr: netip.MustParseAddrPort("[fd00:10:0:2::1]:2905"), Slots: 3}, {Addr: netip.MustParseAddrPort("[fd00:10:0:2::2]:2905")}},
				Frontends: []contents.Frontend{clusterIP("fd00:96::b", 2905), limited(external("2001:db8::2905", 2905))},
				Sources:   prefixes("2001:db8:2::/48", "2001:db8:3::1/128")},
			{Family: program.IPv4, Name: "media/turns:m3ua", Protocol: sctp, Method: program.InTurn, Cluster: endpoints("10.0.2.9:2905", "10.0.2.10:2905"),
				Frontends: []contents.Frontend{clusterIP("10.96.0.29", 2905)}},
			{Family: program.IPv4, Name: "default/empty:http", Protocol: tcp, Frontends: []contents.Frontend{
				refused(clusterIP("10.96.0.99", 80), program.Reject), refused(external("192.0.2.99", 80), program.Reject), refused(nodePort(30099), program.Reject),
			}},
			{Family: program.IPv6, Name: "default/elsewhere:http", Protocol: udp, Cluster: endpoints("[fd00:10:0:1::5]:80"), Frontends: []contents.Frontend{
				clusterIP("fd00:96::c", 80), refused(externalLocal("2001:db8::c", 80), program.Drop),
				{Port: 30098, Pool: program.BySource, Refusal: program.Drop, Masquerade: contents.MasqueradeNode},
				{Addr: addr("2001:db8::d"), Port: 80, Refusal: program.Drop},
			}},
			{Family: program.IPv4, Name: "media/rtp:rtp", Protocol: udp, Cluster: append(onNode("10.0.1.1:0"), endpoints("10.0.2.1:0")...),
				Local: onNode("10.0.1.1:0"), Frontends: []contents.Frontend{
					ranged(clusterIP("10.96.0.60", 10000), 19999), ranged(external("192.0.2.60", 10000), 19999),
					ranged(limited(externalLocal("198.51.100.60", 10000)), 19999),
				}, Sources: prefixes("198.51.100.0/24")},
			{Family: program.IPv6, Name: "media/all:all", Protocol: tcp, Method: program.InTurn, Cluster: endpoints("[fd00:10:0:1::5]:0"), Frontends: []contents.Frontend{
				ranged(clusterIP("fd00:96::60", 1), 65535), refused(ranged(externalLocal("2001:db8::60", 1), 65535), program.Drop),
			}},
			{Family: program.IPv6, Name: "media/none:none", Protocol: tcp, Frontends: []contents.Frontend{
				refused(ranged(clusterIP("fd00:96::61", 5000), 6000), program.Reject),
				refused(ranged(limited(external("2001:db8::61", 5000)), 6000), program.Reject),
			}, Sources: prefixes("2001:db8:2::/48")},
		},
	}
}

// stickyExample has session affinity, in both pools and families. Pods are recognized by their interface, and all
// connections to cluster IPs are masqueraded.
func stickyExample() example {
	all := append(onNode("10.0.1.1:80", "10.0.1.2:80"), endpoints("10.0.2.1:80")...)
	return example{
		name:    "sticky",
		globals: contents.Globals{MasqueradeAll: true, DropInvalid: true, PodInterface: "veth*", NodePortAddresses: addrs("192.168.7.1")},
		ports: []contents.Port{
			{Family: program.IPv4, Name: "default/sticky:http", Protocol: tcp, Affinity: 3 * time.Hour, Cluster: all, Local: all[:2],
				Frontends: []contents.Frontend{clusterIP("10.96.0.11", 80), externalLocal("192.0.2.12", 80), nodePort(30011)}},
			{Family: program.IPv6, Name: "default/sticky:http", Protocol: udp, Affinity: 90 * time.Second,
				Cluster:   endpoints("[fd00:10::1]:80", "[fd00:10::2]:80", "[fd00:10::3]:80"),
				Frontends: []contents.Frontend{clusterIP("fd00:96::11", 80)}},
			{Family: program.IPv6, Name: "default/both:http", Protocol: tcp, Affinity: 86401 * time.Second, Method: program.InTurn,
				Cluster: endpoints("[fd00:10::1]:80", "[fd00:10::4]:80"), Local: onNode("[fd00:10::4]:80"),
				Frontends: []contents.Frontend{externalLocal("2001:db8::11", 443)}},
			{Family: program.IPv4, Name: "default/range:range", Protocol: tcp, Affinity: 3 * time.Hour, Cluster: append(onNode("10.0.1.1:0"), endpoints("10.0.2.1:0")...),
				Local: onNode("10.0.1.1:0"), Frontends: []contents.Frontend{ranged(externalLocal("192.0.2.61", 5000), 6000)}},
		},
	}
}

// hashExample has pools with consistent hashing: tables of at least 1,021 slots.
func hashExample() example {
	return example{
		name:    "hash",
		large:   true,
		globals: contents.Globals{Fleet: true},
		ports: []contents.Port{
			{Family: program.IPv4, Name: "default/hash:http", Protocol: tcp, Method: program.SourceHash, Cluster: endpoints("10.0.0.1:80", "10.0.0.2:80"),
				Frontends: []contents.Frontend{clusterIP("10.96.0.12", 80)}},
			{Family: program.IPv6, Name: "default/hash:http", Protocol: tcp, Method: program.SourceHash, Affinity: time.Minute,
				Local: onNode("[fd00:10::1]:80", "[fd00:10::2]:80"), Frontends: []contents.Frontend{externalLocal("2001:db8::12", 80)}},
			{Family: program.IPv4, Name: "default/range:hash", Protocol: tcp, Method: program.SourceHash, Cluster: endpoints("10.0.0.1:0", "10.0.0.2:0"),
				Frontends: []contents.Frontend{ranged(clusterIP("10.96.0.13", 80), 90)}},
			{Family: program.IPv4, Name: "default/port-hash:http", Protocol: tcp, Method: program.SourcePortHash, Cluster: endpoints("10.0.0.3:80"),
				Answers: netip.MustParseAddrPort("10.96.0.14:80"), Frontends: []contents.Frontend{clusterIP("10.96.0.14", 80)}},
			{Family: program.IPv6, Name: "default/port-hash:http", Protocol: tcp, Method: program.SourcePortHash, Cluster: endpoints("[fd00:10::3]:80"),
				Answers: netip.MustParseAddrPort("[fd00:96::14]:80"), Frontends: []contents.Frontend{clusterIP("fd00:96::14", 80)}},
		},
	}
}

// ipvsExample has frontends that IPVS serves. One of them has policy Local, and a pool for pods and the node.
func ipvsExample() example {
	byIPVS := func(fe contents.Frontend) contents.Frontend {
		fe.Pool, fe.IPVS = program.NoPool, true
		return fe
	}
	local := externalLocal("192.0.2.20", 80)
	local.IPVS, local.HoldsRefusals = true, true
	return example{
		name: "ipvs",
		globals: contents.Globals{
			IPVS: true, Unanswered: true, Refusing: true, PodCIDRs: prefixes("10.0.0.0/16", "fd00:10::/56"), NodePortAddresses: addrs("192.168.7.1", "fd00:7::1"),
		},
		ports: []contents.Port{
			{Family: program.IPv4, Name: "default/busy:http", Protocol: tcp, Hairpin: addrs("10.0.1.1"), Frontends: []contents.Frontend{
				byIPVS(clusterIP("10.96.0.20", 80)), byIPVS(nodePort(30020)),
				limited(byIPVS(external("192.0.2.21", 80))),
			}, Sources: prefixes("198.51.100.0/24")},
			{Family: program.IPv4, Name: "default/near:http", Protocol: tcp, Cluster: endpoints("10.0.1.1:80", "10.0.2.1:80"),
				Hairpin: addrs("10.0.1.1"), Frontends: []contents.Frontend{
					local, {Port: 30021, Pool: program.BySource, Masquerade: contents.MasqueradeNode, IPVS: true, HoldsRefusals: true},
				}},
			{Family: program.IPv6, Name: "default/busy:http", Protocol: udp, Frontends: []contents.Frontend{byIPVS(clusterIP("fd00:96::20", 80))}},
		},
	}
}

// bareExample has one pod interface, by its whole name.
func bareExample() example {
	return example{
		name:    "bare",
		globals: contents.Globals{PodInterface: "cni0", ServiceCIDRs: prefixes("0.0.0.0/0", "::/0")},
		ports: []contents.Port{{Family: program.IPv4, Name: "default/web:80", Protocol: tcp, Cluster: endpoints("10.0.1.1:80"),
			Frontends: []contents.Frontend{clusterIP("10.96.0.10", 80), externalLocal("192.0.2.12", 80)}}},
	}
}

// emptyExample is the program without any Service.
func emptyExample() example { return example{name: "empty"} }

func (x example) install(t testing.TB, e *Engine) Result {
	t.Helper()
	e.SetGlobals(x.globals)
	mustSet(t, e, x.ports...)
	return mustApply(t, e)
}

func sortEndpoints(list []contents.Endpoint) {
	slices.SortFunc(list, func(a, b contents.Endpoint) int { return a.Addr.Compare(b.Addr) })
}
