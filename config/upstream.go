package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// ProxyMode is the mode of kube-proxy that Verdict replaces. Empty: none, and Verdict's own defaults hold.
type ProxyMode string

// The modes of kube-proxy on Linux.
const (
	ProxyModeIPTables ProxyMode = "iptables"
	ProxyModeIPVS     ProxyMode = "ipvs"
	ProxyModeNFTables ProxyMode = "nftables"
)

// Upstream holds settings that exist because kube-proxy has them.
type Upstream struct {
	Mode               ProxyMode `flag:"proxy-mode" usage:"<MODE> of the kube-proxy that Verdict replaces: iptables, ipvs or nftables; chooses defaults of other flags"`
	LocalhostNodePorts bool      `flag:"iptables-localhost-nodeports" usage:"with --proxy-mode=iptables: node ports answer on 127.0.0.1 if --nodeport-addresses has that address"`
}

func (u *Upstream) validate() error {
	if u.Mode == "" {
		return nil
	}
	return oneOf("--proxy-mode", u.Mode, ProxyModeIPTables, ProxyModeIPVS, ProxyModeNFTables)
}

// ModeNodePortAddresses returns the value of --nodeport-addresses with which node ports answer where they answer in the
// mode of kube-proxy. An empty list means the default of the mode.
func (u *Upstream) ModeNodePortAddresses(list []string) []string {
	switch {
	case len(list) > 0:
	case u.Mode == "" || u.Mode == ProxyModeNFTables:
		return []string{NodePortPrimary}
	default:
		list = []string{NodePortAll}
	}
	if u.Mode != ProxyModeIPTables {
		return list
	}
	answers := u.LocalhostNodePorts && slices.ContainsFunc(list, coversLocalhost)
	list = slices.DeleteFunc(slices.Clone(list), func(word string) bool { return !answers && onlyLocalhost(word) })
	if answers && !slices.ContainsFunc(list, onlyLocalhost) {
		list = append(list, NodePortLocalhost)
	}
	return list
}

var localhost = netip.MustParsePrefix("127.0.0.0/8")

// coversLocalhost reports whether a word of --nodeport-addresses has an address of 127.0.0.0/8.
func coversLocalhost(word string) bool {
	p, err := netip.ParsePrefix(word)
	return word == NodePortAll || word == NodePortLocalhost || err == nil && p.Overlaps(localhost)
}

// onlyLocalhost reports whether a word of --nodeport-addresses names loopback addresses of IPv4 and nothing else.
func onlyLocalhost(word string) bool {
	p, err := netip.ParsePrefix(word)
	return word == NodePortLocalhost || err == nil && p.Addr().Is4() && p.Addr().IsLoopback()
}

// withPort adds the port to an address that has none, as kube-proxy does.
func withPort(address, port string) string {
	if _, err := netip.ParseAddr(strings.Trim(address, "[]")); err != nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), port)
}
