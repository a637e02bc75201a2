package lab

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// TrackedFlow is an entry in the connection tracking of a namespace.
type TrackedFlow struct {
	Protocol Protocol
	From     netip.AddrPort // the client
	To       netip.AddrPort // the address that the client asked, before translation
	Server   netip.AddrPort // the endpoint that answers
	ReplyTo  netip.AddrPort // whom it answers: the client, or the node that masquerades it
}

// Flows lists the flows of a family that a namespace tracks.
func (n *Namespace) Flows(f Family) (out []TrackedFlow, err error) {
	err = n.Do(func() error {
		list, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(domain(f)))
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("list the flows of %s: %w", n.Name, err)
		}
		for _, c := range list {
			out = append(out, TrackedFlow{
				Protocol: Protocol(c.Forward.Protocol),
				From:     addrPort(c.Forward.SrcIP, c.Forward.SrcPort),
				To:       addrPort(c.Forward.DstIP, c.Forward.DstPort),
				Server:   addrPort(c.Reverse.SrcIP, c.Reverse.SrcPort),
				ReplyTo:  addrPort(c.Reverse.DstIP, c.Reverse.DstPort),
			})
		}
		return nil
	})
	return out, err
}

func addrPort(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

// ForgetFlows empties the connection tracking of a namespace.
func (n *Namespace) ForgetFlows() error {
	return n.Do(func() error {
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			return fmt.Errorf("empty the connection tracking of %s: %w", n.Name, err)
		}
		return nil
	})
}

// ForgetUntranslated removes the flows to some targets whose destination is not translated.
func (n *Namespace) ForgetUntranslated(to map[netip.AddrPort]bool) error {
	return n.Do(func() error {
		for _, f := range Families() {
			_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(domain(f)), untranslated(to))
			if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
				return fmt.Errorf("remove flows from the connection tracking of %s: %w", n.Name, err)
			}
		}
		return nil
	})
}

// untranslated matches flows to these targets whose destination is not translated.
type untranslated map[netip.AddrPort]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (u untranslated) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	to := addrPort(f.Forward.DstIP, f.Forward.DstPort)
	return u[to] && addrPort(f.Reverse.SrcIP, f.Reverse.SrcPort) == to
}
