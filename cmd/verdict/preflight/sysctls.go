package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// sysctl is a setting that is in the way when it has the wrong value.
type sysctl struct {
	name, wrong string
	status      Status
	consequence string
	remedy      string
	ipv4        bool // it does not matter to a host with IPv6 only, and Verdict sets it at its start
}

var sysctls = []sysctl{
	{
		name: "net.ipv4.ip_forward", wrong: "0", status: Error,
		consequence: "the node forwards no packets, so endpoints in IPv4 cannot be reached, except for those in its own network",
		remedy:      "none, if Verdict has not run yet and may write sysctls: it sets this; otherwise sysctl -w net.ipv4.ip_forward=1, also in /etc/sysctl.d",
		ipv4:        true,
	},
	{
		name: "net.ipv6.conf.all.forwarding", wrong: "0", status: Warning,
		consequence: "the node forwards no packets of IPv6, so endpoints in IPv6 cannot be reached",
		remedy:      "as for net.ipv4.ip_forward; by hand, with router advertisements, set accept_ra=2 before",
	},
	{
		name: "net.ipv6.conf.all.disable_ipv6", wrong: "1", status: Warning,
		consequence: "the node has no IPv6, so Services in IPv6 cannot be reached",
		remedy:      "none, if the cluster has no IPv6",
	},
	{
		name: "net.bridge.bridge-nf-call-iptables", wrong: "0", status: Warning,
		consequence: "if pods are on a bridge, a pod cannot reach another one there through a Service: the replies pass the bridge untranslated",
		remedy:      "sysctl -w net.bridge.bridge-nf-call-iptables=1, if the network plugin uses a bridge",
	},
	{
		name: "net.bridge.bridge-nf-call-ip6tables", wrong: "0", status: Warning,
		consequence: "the same in IPv6",
		remedy:      "sysctl -w net.bridge.bridge-nf-call-ip6tables=1, if the network plugin uses a bridge",
	},
}

// Sysctls reports those with a value that is in the way. The host may have IPv6 only, or no Verdict yet, which sets some at its start.
// The root is /proc/sys, except in tests.
func Sysctls(root string, ipv6Only, fresh bool) []Finding {
	return readSysctls(root, ipv6Only || fresh, sysctls...)
}

func readSysctls(root string, mild bool, settings ...sysctl) (list []Finding) {
	for _, s := range settings {
		text, err := os.ReadFile(filepath.Join(root, strings.ReplaceAll(s.name, ".", "/")))
		value := strings.TrimSpace(string(text))
		switch {
		case errors.Is(err, fs.ErrNotExist): // without the module, the setting does not matter
		case err != nil:
			list = append(list, Finding{Check: s.name, Status: Warning, Detail: err.Error(), Remedy: asRoot})
		case value == s.wrong:
			if s.ipv4 && mild {
				s.status = Warning
			}
			list = append(list, Finding{Check: s.name, Status: s.status, Detail: fmt.Sprintf("%s: %s", value, s.consequence), Remedy: s.remedy})
		default:
			list = append(list, Finding{Check: s.name, Status: OK, Detail: value})
		}
	}
	return list
}

// reachable reports whether others can reach the host at addresses of IPv4, and of IPv6.
func reachable() (families [2]bool) {
	list, _ := net.InterfaceAddrs() // without a list, the host counts as usual
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			families[p.Addr().BitLen()/128] = true
		}
	}
	return families
}

// IPv6Only reports whether others can reach the host at addresses of IPv6, and at none of IPv4.
func IPv6Only() bool { return reachable() == [2]bool{false, true} }

// Routes reports addresses of Services to which this host has no route. The kernel looks for one before the rules translate what
// the host itself sends. Without addresses, two for documentation stand for all.
func Routes(services []netip.Addr) (list []Finding) {
	known := len(services) > 0
	for i, text := range []string{"192.0.2.1", "2001:db8::1"} {
		if !known && reachable()[i] {
			services = append(services, netip.MustParseAddr(text))
		}
	}
	for _, a := range services {
		if _, err := netlink.RouteGet(a.AsSlice()); err != nil {
			list = append(list, Finding{
				Check: "route to " + a.String(), Status: Warning,
				Detail: err.Error() + ": connections of this node itself to Services at such addresses fail, before a rule can translate them",
				Remedy: "add a default route, or one to the range of Services by a device with an address: ip route add RANGE dev DEVICE",
			})
		}
	}
	return list
}

// MoreRoom is the remedy for a table of connections that is full.
const MoreRoom = "raise --conntrack-max-per-core or --conntrack-min; 'conntrack -L' shows who has the connections"

// Room reports a table of connections that is full or nearly full.
func Room(r conntrack.Room, err error) Finding {
	f := Finding{Check: "table of connections", Status: OK, Detail: r.String()}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Detail = "empty: nf_conntrack is not loaded"
	case err != nil:
		f.Status, f.Detail, f.Remedy = Warning, err.Error(), asRoot
	case r.Tight():
		f.Status, f.Detail = Warning, r.String()+": when it is full, new connections of all Services fail"
		f.Remedy = MoreRoom
	}
	return f
}
