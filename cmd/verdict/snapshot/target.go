// Package target reads and writes destinations of connections: an address, a port and a protocol.
package target

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

const form = "ADDRESS:PORT or ADDRESS:PORT/PROTOCOL, such as 10.96.0.10:53/udp or [fd00::10]:80"

// Parse reads ADDRESS:PORT[/PROTOCOL].
func Parse(text string) (at netip.AddrPort, protocol uint8, err error) {
	address, name, hasProtocol := strings.Cut(text, "/")
	if _, err := netip.ParseAddr(address); hasProtocol && err != nil && !strings.Contains(text, ":") {
		return at, 0, fmt.Errorf("destination %q looks like a Service; write --service %s --from SOURCE", text, text)
	}
	protocol = unix.IPPROTO_TCP
	if hasProtocol {
		if protocol, err = Protocol(name); err != nil {
			return at, 0, fmt.Errorf("destination %q: %w", text, err)
		}
	}
	if at, err = netip.ParseAddrPort(address); err == nil {
		if at.Port() == 0 {
			return at, 0, fmt.Errorf("destination %q has no port; write %s", text, form)
		}
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), protocol, nil
	}
	if _, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		return at, 0, fmt.Errorf("destination %q has no port; write %s", text, form)
	}
	return at, 0, fmt.Errorf("destination %q must be %s", text, form)
}

// Protocol parses the name of a protocol.
func Protocol(name string) (uint8, error) {
	for _, p := range []state.Protocol{state.TCP, state.UDP, state.SCTP} {
		if p.String() == strings.ToLower(name) {
			return uint8(p), nil
		}
	}
	return 0, fmt.Errorf("the protocol %q must be tcp, udp or sctp", name)
}
