package proxier

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// environment is what follows from the settings, the Node object and the host's addresses for all Services alike.
type environment struct {
	plan    plan.Environment
	globals nft.Globals
	host    map[netip.Addr]bool // the host's own addresses
}

// newEnvironment derives it.
func newEnvironment(s *config.Settings, env state.Environment, node *state.Node) environment {
	host := lasting(env.HostAddresses)
	pods := podCIDRs(s, node)
	podInterface := podInterface(s)
	return environment{
		host: hostAddresses(host),
		plan: plan.Environment{
			NodeName:      s.NodeName,
			Zone:          node.Zone,
			NodeAddresses: node.Addresses,
			IPv4:          true,
			DetectsLocal:  podInterface != "" || len(pods) > 0,
		},
		globals: nft.Globals{
			MasqueradeAll:     s.MasqueradeAll,
			PodInterface:      podInterface,
			PodCIDRs:          pods,
			ServiceCIDRs:      env.ServiceCIDRs,
			NodePortAddresses: nodePortAddresses(s.NodePortAddresses, node.Addresses, host),
		},
	}
}

// lasting leaves out link-local addresses of IPv6, which come and go with every pod and mean nothing without an interface.
func lasting(host []netip.Addr) []netip.Addr {
	return filter(host, func(a netip.Addr) bool { return !a.Is6() || !a.IsLinkLocalUnicast() })
}

// hostAddresses is a set of them.
func hostAddresses(list []netip.Addr) map[netip.Addr]bool {
	host := map[netip.Addr]bool{}
	for _, a := range list {
		host[a] = true
	}
	return host
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

// nodePortAddresses are the addresses on which node ports answer: those of the host that a word or a range names.
// "primary" is the first of the node's own addresses in each family, whether the host has it by now or not.
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

// within lists host addresses of a range. The ranges of everything do not mean loopback, as in kube-proxy.
func within(cidr string, host []netip.Addr) []netip.Addr {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return nil // Validate has refused it
	}
	return filter(host, func(a netip.Addr) bool {
		return p.Contains(a) && (!a.IsLoopback() || p.Bits() > 0 && isLoopback(a))
	})
}

// isLoopback leaves ::1 out: the kernel finds the route back to it only on the interface lo (rt6_need_strict), so a
// connection to ::1 cannot be translated to a pod.
func isLoopback(a netip.Addr) bool { return a.IsLoopback() && a.Is4() }

func filter(list []netip.Addr, keep func(netip.Addr) bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return !keep(a) })
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

// samePlan says that no Service needs planning again.
func (e *environment) samePlan(o *environment) bool {
	return e.plan.NodeName == o.plan.NodeName && e.plan.Zone == o.plan.Zone &&
		e.plan.IPv4 == o.plan.IPv4 && e.plan.IPv6 == o.plan.IPv6 && e.plan.DetectsLocal == o.plan.DetectsLocal &&
		slices.Equal(e.plan.NodeAddresses, o.plan.NodeAddresses)
}

// sameAddresses says that the virtual servers of all service ports stand where they should.
func (e *environment) sameAddresses(o *environment) bool {
	return maps.Equal(e.host, o.host) && slices.Equal(e.globals.NodePortAddresses, o.globals.NodePortAddresses)
}

func (e *environment) sameGlobals(o *environment) bool {
	a, b := &e.globals, &o.globals
	return a.MasqueradeAll == b.MasqueradeAll && a.IPVS == b.IPVS && a.PodInterface == b.PodInterface && slices.Equal(a.PodCIDRs, b.PodCIDRs) &&
		slices.Equal(a.ServiceCIDRs, b.ServiceCIDRs) && slices.Equal(a.NodePortAddresses, b.NodePortAddresses)
}
