package explain

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/ipvs"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	nftkernel "github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// kernel answers the questions of the pure part. Each answer is one look-up, or reads something that does not grow with
// the cluster.
type kernel interface {
	// Walk sends a packet through the chains of Verdict at a hook.
	Walk(hook, kind string, p inspect.Packet) (inspect.Passage, error)
	// Related finds what the tables have about a destination that is no frontend.
	Related(p inspect.Packet) ([]inspect.Look, error)
	// Others lists the chains of other tables that can stop or translate packets.
	Others(f program.Family) ([]inspect.ForeignChain, error)
	// Route is where this node sends packets for an address.
	Route(to netip.Addr) (route, error)
	// Flows lists the flows of a client to a destination.
	Flows(q conntrack.Query) ([]conntrack.FoundFlow, error)
	// Server is a virtual server of Verdict.
	Server(k ipvsctl.Key) (ipvsctl.Status, bool, error)
	// LeftOut asks the daemon about the endpoints of a Service (namespace/name).
	LeftOut(service string) ([]socket.Endpoint, error)
	// Problems are those that the daemon has of a Service (namespace/name).
	Problems(service string) ([]socket.Problem, error)
	// Offered says after how many packets a connection takes the fast path, what offers it, and which of its devices is none of it.
	Offered(p inspect.Packet, nodePort bool, out string) (after uint32, by inspect.Look, device string, err error)
	// FastPath asks the daemon which connections of a Service (namespace/name) stay on the rules.
	FastPath(service string) (socket.FastPath, error)
	// Draining asks the daemon whether the node drains.
	Draining() (bool, error)
	// Legacy lists the tables of iptables-legacy, whose rules cannot be read here.
	Legacy(f program.Family) []string
}

// route is where this node sends packets for an address.
type route struct {
	local bool   // to itself
	link  string // otherwise, by this interface
	ports bool   // which is a bridge or a VRF: one device in front of several
	stays bool   // which is a bridge that keeps connections from the fast path
	// refused: the node has no route for the address.
	refused bool
	// off is the sysctl that keeps this host from forwarding packets; "": it forwards them.
	off    string
	source netip.Addr // what the node uses as its own address
}

// live is the kernel of this network namespace.
type live struct{ *inspect.Tables }

func (*live) Others(f program.Family) ([]inspect.ForeignChain, error) {
	return inspect.Foreign(nftkernel.Options{}, f)
}

func (*live) Flows(q conntrack.Query) ([]conntrack.FoundFlow, error) {
	return conntrack.Find(conntrack.Options{}, q)
}

func (*live) Server(k ipvsctl.Key) (ipvsctl.Status, bool, error) { return snapshot.VirtualServer(k) }

func (*live) LeftOut(service string) ([]socket.Endpoint, error) {
	return socket.NewClient().Endpoints(service)
}

func (*live) Problems(service string) ([]socket.Problem, error) {
	return socket.NewClient().Problems(service)
}

func (*live) FastPath(service string) (socket.FastPath, error) {
	return socket.NewClient().FastPath(service)
}

func (*live) Draining() (bool, error) {
	status, err := socket.NewClient().Status()
	return status.Drain != "", err
}

func (*live) Legacy(f program.Family) []string {
	name := "ip_tables_names"
	if f == program.IPv6 {
		name = "ip6_tables_names"
	}
	text, _ := os.ReadFile("/proc/thread-self/net/" + name) // without the module there is no file
	return strings.Fields(string(text))
}

func (*live) Route(to netip.Addr) (r route, err error) {
	list, err := netlink.RouteGet(net.IP(to.AsSlice()))
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL):
		return route{refused: true}, nil
	case err != nil || len(list) == 0:
		return r, fmt.Errorf("look up the route to %s: %w", to, err)
	}
	if sysctl, is := ipvs.Forwards(program.FamilyOf(to)); !is {
		r.off = sysctl
	}
	r.source, _ = netip.AddrFromSlice(list[0].Src)
	r.source = r.source.Unmap()
	if r.local = list[0].Type == unix.RTN_LOCAL; r.local {
		return r, nil
	}
	link, err := netlink.LinkByIndex(list[0].LinkIndex)
	if err != nil {
		return r, fmt.Errorf("look up the interface of the route to %s: %w", to, err)
	}
	r.link, r.ports = link.Attrs().Name, link.Type() == "bridge" || link.Type() == "vrf"
	r.stays = link.Type() == "bridge" && nftkernel.BridgesStay()
	return r, nil
}
