package config

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
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
	Mode               ProxyMode `flag:"proxy-mode" must:"|iptables|ipvs|nftables" usage:"<MODE> of the kube-proxy that Verdict replaces: iptables, ipvs or nftables; chooses defaults of other flags"`
	LocalhostNodePorts bool      `flag:"iptables-localhost-nodeports" live:"yes" usage:"with --proxy-mode=iptables: node ports answer on 127.0.0.1 if --nodeport-addresses has that address"`
	// FeatureGates without a value have the default of kube-proxy.
	FeatureGates map[string]bool `flag:"feature-gates" live:"yes" usage:"feature <GATES> of kube-proxy, such as AllowServiceExternalIPs=false: then no externalIPs are served, whatever --external-ip-cidrs says; other gates have no effect"`
}

// ExternalIPsGate is the only feature gate of kube-proxy whose disregard would open something (CVE-2020-8554).
const ExternalIPsGate = "AllowServiceExternalIPs"

// externalIPsByDefault is the default of the gate in kube-proxy 1.37. KEP-5707 makes it false in 1.40.
const externalIPsByDefault = true

// ExternalIPRanges returns where externalIPs are served. A closed gate has the last word: another setting must not
// open by accident what somebody has closed.
func (s *Settings) ExternalIPRanges() []netip.Prefix {
	allowed, set := s.Upstream.FeatureGates[ExternalIPsGate]
	if !set {
		allowed = externalIPsByDefault
	}
	if !allowed {
		return nil
	}
	return Prefixes(s.ExternalIPs)
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

// Node holds the settings of the host that the daemon makes when it starts. They are those of kube-proxy.
type Node struct {
	Conntrack   Conntrack
	OOMScoreAdj int `flag:"oom-score-adj" live:"yes" must:"score" usage:"<NUMBER> from -1000 to 1000: how likely the kernel ends the process when memory is short"`
}

// Conntrack holds the settings of connection tracking. 0 leaves a setting of the kernel as it is.
type Conntrack struct {
	// Min counts only if MaxPerCore is set.
	MaxPerCore     int           `flag:"conntrack-max-per-core" live:"yes" must:"natural" usage:"<NUMBER> of connections for each core that the kernel can track; a larger limit stays; 0: leave it as it is"`
	Min            int           `flag:"conntrack-min" live:"yes" must:"natural" usage:"<NUMBER> of connections that the kernel can track at least"`
	TCPEstablished time.Duration `flag:"conntrack-tcp-timeout-established" live:"yes" must:"timeout" usage:"idle <TIME> of established TCP connections; 0: leave it as it is"`
	TCPCloseWait   time.Duration `flag:"conntrack-tcp-timeout-close-wait" live:"yes" must:"timeout" usage:"idle <TIME> of TCP connections that only the server has closed; 0: leave it as it is"`
	UDP            time.Duration `flag:"conntrack-udp-timeout" live:"yes" must:"timeout" usage:"idle <TIME> of UDP flows without a reply; 0: leave it as it is"`
	UDPStream      time.Duration `flag:"conntrack-udp-timeout-stream" live:"yes" must:"timeout" usage:"idle <TIME> of UDP flows with replies; 0: leave it as it is"`
	TCPBeLiberal   bool          `flag:"conntrack-tcp-be-liberal" live:"yes" usage:"track TCP packets outside of the window as well, instead of passing them on without translation"`
}

func defaultNode() Node {
	return Node{
		Conntrack: Conntrack{
			MaxPerCore: 32 * 1024, Min: 128 * 1024, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour,
		},
		OOMScoreAdj: -999,
	}
}
