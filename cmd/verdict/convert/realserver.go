package convert

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// serverAt parses the address of a server. Without a port, it has that of the virtual server.
func (c *conversion) serverAt(r *statement, port uint16) (netip.AddrPort, bool) {
	at, err := addrPort(r.word(1), r.word(2))
	if err != nil {
		c.note(r.line, "%s: %s; it is left out", strings.Join(r.words, " "), err)
		return netip.AddrPort{}, false
	}
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), port)
	}
	return at, true
}

// sorry reads the server of last resort. keepalived asks nobody whether it serves, so it gets connections even if it does
// not pass the check.
func (c *conversion) sorry(b *balancer, r *statement, port uint16) {
	if at, ok := c.serverAt(r, port); ok {
		c.endpoint(b, r.line, at, nil, true)
		b.Spec.OnAllDown = "backup"
	}
}

// real reads a real server.
func (c *conversion) real(b *balancer, s, r *statement, port uint16) {
	at, ok := c.serverAt(r, port)
	if !ok {
		return
	}
	weight := uint16(1)
	if text := value("weight", r, s); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if weight = uint16(n); err != nil {
			c.note(r.line, "weight %s: Verdict has 0 to 65535; 1 is written", text)
			weight = 1
		}
	}
	for _, o := range r.all("lvs_method") {
		c.kind(b, o)
	}
	c.endpoint(b, r.line, at, &weight, false)
	for _, o := range r.block {
		switch {
		case o.word(0) == "weight" || o.word(0) == "lvs_method" || isChecker(o):
		case slices.Contains(sharedOptions(), o.word(0)):
		default:
			c.note(o.line, "%s of real_server %s: Verdict has no counterpart", strings.Join(o.words, " "), r.word(1))
		}
	}
}
