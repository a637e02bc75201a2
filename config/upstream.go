package config

import (
	"fmt"
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
	Mode ProxyMode
	// LocalhostNodePorts counts in mode iptables only: node ports answer on 127.0.0.1.
	LocalhostNodePorts bool
}

func (u *Upstream) validate() error {
	switch u.Mode {
	case "", ProxyModeIPTables, ProxyModeIPVS, ProxyModeNFTables:
		return nil
	}
	return fmt.Errorf("--proxy-mode=%s: must be iptables, ipvs or nftables", u.Mode)
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
