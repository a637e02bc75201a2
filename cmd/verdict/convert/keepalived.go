package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// keepalived reads a configuration of keepalived.
func (c *conversion) keepalived(text string) {
	file := c.parse(text)
	groups := map[string]*statement{}
	used := map[string]bool{}
	for _, s := range file {
		if s.word(0) == "virtual_server_group" {
			groups[s.word(1)] = s
		}
	}
	for _, s := range file {
		switch {
		case s.word(0) == "virtual_server" && s.word(1) == "group":
			used[s.word(2)] = true
			c.group(s, groups[s.word(2)])
		case s.word(0) == "virtual_server" && s.word(1) == "fwmark":
			c.noMarks(s.line, s.word(2))
		case s.word(0) == "virtual_server":
			c.single(s)
		case s.word(0) != "virtual_server_group":
			c.note(s.line, "%s: it is no virtual server; it is left out", strings.Join(s.words, " "))
		}
	}
	for name, s := range groups {
		if !used[name] {
			c.note(s.line, "virtual_server_group %s: no virtual server uses it; it is left out", name)
		}
	}
}

// single reads a virtual server with an address.
func (c *conversion) single(s *statement) {
	at, err := addrPort(s.word(1), s.word(2))
	if err != nil {
		c.note(s.line, "%s: %s; it is left out", strings.Join(s.words, " "), err)
		return
	}
	c.virtual(s, frontendName(protocolOf(s), at), at.Port(), []netip.Addr{at.Addr()})
}

// group reads a virtual server with a group of addresses: a balancer for each port.
func (c *conversion) group(s, group *statement) {
	if group == nil {
		c.note(s.line, "virtual_server group %s: there is no such group; it is left out", s.word(2))
		return
	}
	addresses := map[uint16][]netip.Addr{}
	var ports []uint16
	for _, entry := range group.block {
		if entry.word(0) == "fwmark" {
			c.noMarks(entry.line, entry.word(1))
			continue
		}
		list, port, err := entryOf(entry)
		if err != nil {
			c.note(entry.line, "%s: %s; it is left out", strings.Join(entry.words, " "), err)
			continue
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
		addresses[port] = append(addresses[port], list...)
	}
	for _, port := range ports {
		name := s.word(2)
		if len(ports) > 1 {
			name = fmt.Sprintf("%s-%d", name, port)
		}
		c.virtual(s, name, port, addresses[port])
	}
}

// maxRange is how many addresses of a range are written.
const maxRange = 256

// entryOf reads an address or a range of addresses such as 192.0.2.3-10, and a port.
func entryOf(entry *statement) (list []netip.Addr, port uint16, err error) {
	first, last, isRange := strings.Cut(entry.word(0), "-")
	at, err := addrPort(first, entry.word(1))
	switch {
	case err != nil:
		return nil, 0, err
	case !isRange:
		return []netip.Addr{at.Addr()}, at.Port(), nil
	}
	cut, base := strings.LastIndexByte(first, '.')+1, 10
	if at.Addr().Is6() {
		cut, base = strings.LastIndexByte(first, ':')+1, 16
	}
	from, fromErr := strconv.ParseUint("0"+first[cut:], base, 32)
	to, err := strconv.ParseUint(last, base, 32)
	if fromErr != nil || err != nil || to < from || to-from >= maxRange {
		return nil, 0, fmt.Errorf("expected a range of at most %d addresses", maxRange)
	}
	for n := from; n <= to; n++ {
		a, err := netip.ParseAddr(first[:cut] + strconv.FormatUint(n, base))
		if err != nil {
			return nil, 0, err
		}
		list = append(list, a)
	}
	return list, at.Port(), nil
}

// addrPort parses an address and a port. No port is port 0, which is all ports.
func addrPort(address, port string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", address)
	}
	if port == "" {
		port = "0"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not a port", port)
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}

func protocolOf(s *statement) string {
	if p := value("protocol", s); p != "" {
		return strings.ToUpper(p)
	}
	return "TCP"
}

// virtual makes a balancer of a virtual server.
func (c *conversion) virtual(s *statement, name string, port uint16, addresses []netip.Addr) {
	b := c.balancer(s.line, strings.Join(s.words, " "))
	c.named(b, name)
	b.listen(protocolOf(s), port, addresses...)
	c.schedule(b, s.line, "wlc") // of keepalived, if there is no other
	for _, o := range s.block {
		c.option(b, s, o)
	}
	for _, r := range s.all("real_server") {
		c.real(b, s, r, port)
	}
	for _, r := range s.all("sorry_server") {
		c.sorry(b, r, port)
	}
	b.finish()
	c.check(b, s)
}

// option reads a statement of a virtual server.
func (c *conversion) option(b *balancer, s, o *statement) {
	switch word := o.word(0); word {
	case "lb_algo", "lvs_sched":
		c.schedule(b, o.line, o.word(1))
	case "lb_kind", "lvs_method":
		c.kind(b, o)
	case "persistence_timeout":
		c.persist(b, o.line, o.word(1))
	case "sh-port", "mh-port", "sh-fallback", "mh-fallback", "flag-1", "flag-2":
		c.flag(b, o.line, word)
	case "protocol", "real_server", "sorry_server", "virtualhost", "ip_family":
	case "delay_loop", "connect_timeout", "retry", "delay_before_retry", "weight": // for all real servers
	default:
		c.note(o.line, "%s of virtual_server %s: Verdict has no counterpart", strings.Join(o.words, " "), strings.Join(s.words[1:], " "))
	}
}

// kind reads how packets reach real servers.
func (c *conversion) kind(b *balancer, o *statement) {
	switch strings.ToUpper(o.word(1)) {
	case "NAT":
		c.forward(b, o.line, "nat")
	case "DR":
		c.forward(b, o.line, "route")
	case "TUN":
		c.forward(b, o.line, "tunnel")
	default:
		c.note(o.line, "%s: expected NAT, DR or TUN", strings.Join(o.words, " "))
	}
}

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
	for _, o := range r.all("lvs_method") {
		c.kind(b, o)
	}
	c.endpoint(b, r.line, at, c.weight(r.line, value("weight", r, s)), false)
	for _, o := range r.block {
		switch {
		case o.word(0) == "weight" || o.word(0) == "lvs_method" || isChecker(o):
		case slices.Contains(sharedOptions(), o.word(0)):
		default:
			c.note(o.line, "%s of real_server %s: Verdict has no counterpart", strings.Join(o.words, " "), r.word(1))
		}
	}
}
