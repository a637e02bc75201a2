package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft"
)

// question is one connection.
type question struct {
	src      netip.Addr
	srcPort  uint16 // 0: any
	dst      netip.AddrPort
	protocol uint8
	// link is the interface by which packets come in, if the source does not tell: for clients outside.
	link string
}

func (q *question) family() nft.Family { return nft.FamilyOf(q.dst.Addr()) }

func (q *question) String() string {
	return fmt.Sprintf("%s from %s to %s", strings.ToUpper(protocolName(q.protocol)), q.client(), q.dst)
}

func (q *question) client() string {
	if q.srcPort != 0 {
		return netip.AddrPortFrom(q.src, q.srcPort).String()
	}
	return q.src.String()
}

const (
	destinationForm = "ADDRESS:PORT or ADDRESS:PORT/PROTOCOL, such as 10.96.0.10:53/udp or [fd00::10]:80"
	sourceForm      = "an address (also ADDRESS:PORT), node, outside or pod/NAMESPACE/NAME"
)

// parseDestination reads ADDRESS:PORT[/PROTOCOL].
func parseDestination(text string) (at netip.AddrPort, protocol uint8, err error) {
	address, name, hasProtocol := strings.Cut(text, "/")
	if _, err := netip.ParseAddr(address); hasProtocol && err != nil && !strings.Contains(text, ":") {
		return at, 0, fmt.Errorf("destination %q looks like a Service; write --service %s --from SOURCE", text, text)
	}
	protocol = unix.IPPROTO_TCP
	if hasProtocol {
		if protocol, err = parseProtocol(name); err != nil {
			return at, 0, fmt.Errorf("destination %q: %w", text, err)
		}
	}
	if at, err = netip.ParseAddrPort(address); err == nil {
		if at.Port() == 0 {
			return at, 0, fmt.Errorf("destination %q has no port; write %s", text, destinationForm)
		}
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), protocol, nil
	}
	if _, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		return at, 0, fmt.Errorf("destination %q has no port; write %s", text, destinationForm)
	}
	return at, 0, fmt.Errorf("destination %q must be %s", text, destinationForm)
}

func parseProtocol(name string) (uint8, error) {
	switch strings.ToLower(name) {
	case "tcp":
		return unix.IPPROTO_TCP, nil
	case "udp":
		return unix.IPPROTO_UDP, nil
	case "sctp":
		return unix.IPPROTO_SCTP, nil
	}
	return 0, fmt.Errorf("the protocol %q must be tcp, udp or sctp", name)
}

func protocolName(p uint8) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return fmt.Sprint(p)
}
