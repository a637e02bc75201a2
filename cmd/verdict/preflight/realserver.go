package preflight

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// realServer is a machine that gets packets of Services as they are (forwarding by route or tunnel).
type realServer struct {
	root  string // /proc/sys, except in tests
	links []netlink.Link
	at    map[netip.Addr]netlink.Link
	v4    map[string]bool // the links with an IPv4 address
}

// RealServer checks whether this machine can be a real server for addresses of Services. ipvsctl/README.md has the commands
// that make it one.
func RealServer(addrs []netip.Addr, root string) []Finding {
	s := realServer{root: root, at: map[netip.Addr]netlink.Link{}, v4: map[string]bool{}}
	if err := s.read(); err != nil {
		return []Finding{{Check: "links", Status: Error, Detail: err.Error(), Remedy: asRoot}}
	}
	var list []Finding
	for _, a := range addrs {
		list = append(list, s.address(a))
	}
	if slices.ContainsFunc(addrs, netip.Addr.Is4) {
		list = append(list, s.arp()...)
	}
	return append(append(append(list, s.tunnels()...), s.segments()...), readSysctls(root, false, probing)...)
}

// read lists the links and their addresses.
func (s *realServer) read() (err error) {
	if s.links, err = netlink.LinkList(); err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range s.links {
		found, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("list the addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range found {
			addr, _ := netip.AddrFromSlice(a.IP)
			addr = addr.Unmap()
			s.v4[l.Attrs().Name] = s.v4[l.Attrs().Name] || addr.Is4()
			if old := s.at[addr]; old == nil || !resolves(old) {
				s.at[addr] = l // the link that is in the way, if there are several
			}
		}
	}
	return nil
}

// address reports where an address of a Service is.
func (s *realServer) address(a netip.Addr) Finding {
	l := s.at[a]
	move := fmt.Sprintf("ip address add %s dev lo", netip.PrefixFrom(a, a.BitLen()))
	switch {
	case l == nil:
		return Finding{Check: a.String(), Status: Error, Detail: "this machine does not have the address, and drops packets to it", Remedy: move}
	case resolves(l):
		name := l.Attrs().Name
		return Finding{
			Check: a.String(), Status: Error, Detail: name + " has it, so this machine answers in place of the balancer",
			Remedy: fmt.Sprintf("ip address del %s dev %s; %s", netip.PrefixFrom(a, a.BitLen()), name, move),
		}
	}
	return Finding{Check: a.String(), Status: OK, Detail: l.Attrs().Name + " has it"}
}

// resolves reports whether neighbors of a link ask for addresses.
func resolves(l netlink.Link) bool {
	return l.Attrs().RawFlags&noARP == 0 && l.Attrs().Flags&net.FlagLoopback == 0
}

const noARP = 0x80 // IFF_NOARP

// arp reports links at which the machine answers ARP for addresses that only lo has.
func (s *realServer) arp() (list []Finding) {
	for _, want := range []struct {
		name   string
		least  int
		detail string
	}{
		{"arp_ignore", 1, "this machine answers ARP for the address, so clients in its network may bypass the balancer"},
		{"arp_announce", 2, "this machine names the address in its own ARP requests, so neighbors may learn it"},
	} {
		set := "net.ipv4.conf.all." + want.name
		f := Finding{Check: set, Status: OK, Detail: "as it should be"}
		for _, l := range s.links {
			if name := l.Attrs().Name; resolves(l) && s.setting(name, want.name) < want.least {
				f = Finding{Check: set, Status: Error, Detail: name + ": " + want.detail, Remedy: fmt.Sprintf("sysctl -w %s=%d, and write it into /etc/sysctl.d", set, want.least)}
			}
		}
		list = append(list, f)
	}
	return list
}

// setting returns the value that holds for a link: the greater one of its own and that of all.
func (s *realServer) setting(link, name string) (value int) {
	for _, l := range []string{"all", link} {
		text, err := os.ReadFile(filepath.Join(s.root, "net/ipv4/conf", l, name))
		if n, wrong := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && wrong == nil {
			value = max(value, n)
		}
	}
	return value
}

// filtered completes the finding of a tunnel whose packets the reverse path filter drops: the way back to the clients is
// another link. Loose mode (2) accepts that, but not at a link without an address (__fib_validate_source in fib_frontend.c).
func (s *realServer) filtered(f *Finding, tunnel string) {
	switch mode := s.setting(tunnel, "rp_filter"); {
	case mode == 1:
		f.Detail = "rp_filter is 1: the kernel drops unpacked packets of clients that are reached by another link"
		f.Remedy = fmt.Sprintf("sysctl -w net.ipv4.conf.%s.rp_filter=2", tunnel)
	case mode == 2 && !s.v4[tunnel]:
		f.Detail = "rp_filter is 2 and the tunnel has no IPv4 address: the kernel drops all that it unpacks"
		f.Remedy = "ip address add ADDRESS/32 dev " + tunnel + ", with the address of the Service"
	default:
		return
	}
	f.Status = Error
}

// overhead returns the bytes that a tunnel adds to a packet, and the family of these packets; 0: it is no tunnel.
func overhead(l netlink.Link) (bytes, family int) {
	switch l.Type() {
	case "ipip":
		return 20, netlink.FAMILY_V4
	case "gre":
		return 24, netlink.FAMILY_V4
	case "ip6tnl":
		return 40, netlink.FAMILY_V6
	case "ip6gre":
		return 44, netlink.FAMILY_V6
	}
	return 0, 0
}

// segments reports default routes on which this machine announces segments that do not fit into its tunnels. The balancer
// cannot announce less in its place, because the answer to a SYN does not pass it.
func (s *realServer) segments() (list []Finding) {
	for family, headers := range map[int]int{netlink.FAMILY_V4: 40, netlink.FAMILY_V6: 60} {
		most := 0
		for _, l := range s.links {
			if bytes, of := overhead(l); of == family && l.Attrs().Flags&net.FlagUp != 0 {
				most = max(most, bytes)
			}
		}
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST)
		if err != nil || most == 0 {
			continue
		}
		for i := range routes {
			list = append(list, s.segmentsOf(&routes[i], headers+most))
		}
	}
	return list
}

// segmentsOf checks one route. Of each packet, the headers leave no room for data.
func (s *realServer) segmentsOf(r *netlink.Route, headers int) Finding {
	f := Finding{Check: "advmss to " + r.Gw.String(), Status: OK, Detail: fmt.Sprintf("segments of %d bytes fit into the tunnels", r.AdvMSS)}
	at := slices.IndexFunc(s.links, func(l netlink.Link) bool { return l.Attrs().Index == r.LinkIndex })
	if at < 0 {
		return f
	}
	if room := s.links[at].Attrs().MTU - headers; r.AdvMSS == 0 || r.AdvMSS > room {
		f.Status = Warning
		f.Detail = "clients send segments that do not fit into a tunnel: the answer to their SYN, which says how large they may be, does not pass the balancer"
		f.Remedy = fmt.Sprintf("ip route change default via %s dev %s advmss %d", r.Gw, s.links[at].Attrs().Name, room)
	}
	return f
}

// probing lets TCP find out by itself that its segments are too large for the path.
var probing = sysctl{
	name: "net.ipv4.tcp_mtu_probing", wrong: "0", status: Warning,
	consequence: "in a fleet, packet too big may reach another balancer than that of the connection, and the download hangs",
	remedy:      "sysctl -w net.ipv4.tcp_mtu_probing=1, and write it into /etc/sysctl.d, unless the fleet does something else that FLEET.md names",
}

// tunnels reports tunnels that unpack nothing.
func (s *realServer) tunnels() (list []Finding) {
	for _, l := range s.links {
		name, kind := l.Attrs().Name, l.Type()
		bytes, _ := overhead(l)
		if isTunnel := bytes > 0; !isTunnel || strings.HasSuffix(name, "0") && l.Attrs().Flags&net.FlagUp == 0 {
			continue // the kernel makes tunl0 and others by itself
		}
		f := Finding{Check: "tunnel " + name, Status: OK, Detail: kind + ", up"}
		switch {
		case l.Attrs().Flags&net.FlagUp == 0:
			f.Status, f.Detail, f.Remedy = Error, kind+", down: it unpacks nothing", "ip link set "+name+" up"
		case kind == "ipip" || kind == "gre":
			s.filtered(&f, name)
		}
		list = append(list, f)
	}
	if len(list) == 0 {
		list = append(list, Finding{Check: "tunnel", Status: Warning, Detail: "none: packets arrive with forwarding route only",
			Remedy: "nothing for forwarding route; for tunnels see ipvsctl/README.md"})
	}
	return list
}
