package proxier

import (
	"log/slog"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/claims"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// nodeEnvironment is what follows from the settings, the Node object and the host's addresses for all Services alike.
type nodeEnvironment struct {
	settings *config.Settings
	primary  func() ([]netip.Addr, error) // the host's own main addresses
	ipv6     bool                         // the kernel has it
	servers  []netip.AddrPort             // API servers, as the configuration names them
	log      *slog.Logger
	wide     []netip.Prefix // ranges that warnOfRanges told of

	planEnv    plan.Environment
	shared     dataplane.Environment
	apiServers claims.Servers
	known      bool // update was called
	eligible   bool // of the node, for traffic from outside
	askAgain   bool // primary failed the last time, or the settings are others
	refusing   bool // a Service wants to know which endpoints refuse
}

// update derives the environment from what the store has.
func (n *nodeEnvironment) update(env state.Environment) {
	node, host := n.object(env.Node), lasting(env.HostAddresses)
	named := slices.Concat(n.servers, env.Connected)
	addresses := overridden(node.Addresses, n.settings.BindAddress)
	n.shared = dataplane.Environment{
		MasqueradeAll:     n.settings.MasqueradeAll,
		PodInterface:      podInterface(n.settings),
		PodCIDRs:          podCIDRs(n.settings, node),
		ServiceCIDRs:      env.ServiceCIDRs,
		NodePortAddresses: nodePortAddresses(n.settings.NodePortAddresses, addresses, host),
		HostAddresses:     host,
		NodeAddresses:     sorted(addresses),
		APIServers:        sorted(addressesOf(named), addressesOf(env.APIServers)),
		ExternalCIDRs:     config.Prefixes(n.settings.IPVS.ExternalCIDR),
		Unanswered:        n.settings.OutlierDetection != config.OutlierOff,
		Refusing:          n.refusing,
	}
	n.planEnv = plan.Environment{
		NodeName:      n.settings.NodeName,
		Zone:          node.Zone,
		NodeAddresses: addresses,
		IPv4:          true,
		IPv6:          n.ipv6,
		ExternalIPs:   config.Prefixes(n.settings.ExternalIPs),
	}
	n.warnOfRanges()
	n.apiServers = apiServers(named, env.APIServers)
	n.eligible, n.known = node.Eligible, true
}

// apiServers lists where API servers are. Addresses that only the configuration names, or to which only this process
// connects, may be those of a load balancer for API servers, which the cluster may serve itself: load balancer IPs are not
// refused there.
func apiServers(named, servers []netip.AddrPort) claims.Servers {
	out := claims.Servers{}
	for _, at := range named {
		out[at] = false
	}
	for _, at := range servers {
		out[at] = true
	}
	return out
}

func addressesOf(list []netip.AddrPort) (out []netip.Addr) {
	for _, at := range list {
		out = append(out, at.Addr())
	}
	return out
}

// warnOfRanges tells once when IPVS may make addresses of nodes local: those of other nodes are likely to be in a range
// that has one of this node, and Verdict does not know them.
func (n *nodeEnvironment) warnOfRanges() {
	var wide []netip.Prefix
	for _, r := range n.shared.ExternalCIDRs {
		if slices.ContainsFunc(n.shared.NodeAddresses, r.Contains) {
			wide = append(wide, r)
		}
	}
	if len(wide) > 0 && !slices.Equal(wide, n.wide) {
		n.log.Warn("--ipvs-external-cidrs has addresses of nodes; a Service with an address of another node cuts this node off from it",
			"ranges", wide, "remedy", "set the flag to the addresses of your load balancers")
	}
	n.wide = wide
}

// object returns the Node object, or one made from the host's main addresses when there is none: a host without a
// cluster, or one that has not joined yet. When the addresses cannot be read, they stay what they were, and the loop
// asks again.
func (n *nodeEnvironment) object(node *state.Node) *state.Node {
	n.askAgain = false
	if node != nil {
		return node
	}
	addresses, err := n.primary()
	if err != nil {
		addresses = n.planEnv.NodeAddresses
		n.log.Warn("cannot find the host's main addresses; node ports on primary addresses stay as they are; asking again",
			"after", checkPeriod, "addresses", addresses, "error", err)
	}
	n.askAgain = err != nil
	return &state.Node{Name: n.settings.NodeName, Addresses: addresses, Eligible: true}
}

// overridden puts the address of --bind-address before the addresses of the node, so that it is the main one of its
// family. An unspecified address, such as 0.0.0.0, changes nothing.
func overridden(node []netip.Addr, bind string) []netip.Addr {
	addr, err := netip.ParseAddr(bind)
	if err != nil || addr.IsUnspecified() {
		return node
	}
	return append([]netip.Addr{addr}, filter(node, func(a netip.Addr) bool { return a != addr })...)
}

// lasting sorts the host's addresses. It leaves out link-local addresses of IPv6: they come and go with every pod, and
// mean nothing without an interface.
func lasting(host []netip.Addr) []netip.Addr {
	out := filter(host, func(a netip.Addr) bool { return !a.Is6() || !a.IsLinkLocalUnicast() })
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func podCIDRs(s *config.Settings, node *state.Node) []netip.Prefix {
	switch s.DetectLocalMode {
	case config.DetectClusterCIDR:
		return config.Prefixes(s.ClusterCIDRs)
	case config.DetectNodeCIDR:
		return node.PodCIDRs
	}
	return nil
}

func podInterface(s *config.Settings) string {
	switch s.DetectLocalMode {
	case config.DetectBridgeInterface:
		return s.BridgeInterface
	case config.DetectInterfaceNamePrefix:
		return s.InterfaceNamePrefix + "*"
	}
	return ""
}

// nodePortAddresses lists the addresses at which node ports answer: the host's addresses that a word or a range names.
// "primary" means the first address of the node in each family, even if the host does not have that address yet.
func nodePortAddresses(words []string, node, host []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, word := range words {
		switch word {
		case config.NodePortPrimary:
			out = append(out, firstOfEachFamily(node)...)
		case config.NodePortLocalhost:
			out = append(out, filter(host, isLoopback)...)
		case config.NodePortAll:
			out = append(out, filter(host, func(a netip.Addr) bool { return !a.IsLoopback() })...)
		default:
			out = append(out, within(word, host)...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// within lists the host's addresses in a range. Ranges that cover everything leave loopback out, as in kube-proxy.
func within(cidr string, host []netip.Addr) []netip.Addr {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return nil // config.Validate refuses such a word
	}
	return filter(host, func(a netip.Addr) bool {
		return p.Contains(a) && (!a.IsLoopback() || p.Bits() > 0 && isLoopback(a))
	})
}

// isLoopback reports whether an address is an IPv4 loopback address. ::1 is left out: the kernel finds the route back
// to it only on the interface lo (rt6_need_strict), so that a connection to ::1 cannot be translated to a pod.
func isLoopback(a netip.Addr) bool { return a.IsLoopback() && a.Is4() }

func filter(list []netip.Addr, keep func(netip.Addr) bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return !keep(a) })
}

// sorted joins lists of addresses.
func sorted(lists ...[]netip.Addr) []netip.Addr {
	out := slices.Concat(lists...)
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

func firstOfEachFamily(list []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, is4 := range []bool{true, false} {
		if i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Is4() == is4 }); i >= 0 {
			out = append(out, list[i])
		}
	}
	return out
}
